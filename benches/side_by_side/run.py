#!/usr/bin/env python3
"""Runs peers side by side, in turn, and writes a table and a plot of each metric.

    benches/side_by_side/run.py [--peers ID,ID] [--works W1,W2] [--runs 5] [--extra FILE] [--out FOLDER]

Each peer is two processes on this host, `CMD server PORT` (receives) and `CMD client PORT` (sends), that follow the
schedule of examples/bench_peer.rs and print its JSON lines. One round runs every peer once; the figures are medians
over the rounds, so a machine that changes its speed changes it for all. Only ratios mean anything: close other work.

Always there: this crate (rs), the wire format by hand in C (c), and std's sockets. `113` is the UCX that the system
has, `121` the one of Python's wheel (UCX_WHEEL=.../site-packages/libucx/lib). Others come from --extra, a JSON list of
{"id", "label", "transport": "shm"|"tcp", "cmd": [...], "env": {...}}. ucx_perftest is run where it is installed.
"""
import argparse, json, os, random, re, shutil, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TARGET = os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target")
SIZES = {"W0": 8, "W1": 21504, "W2": 1 << 20, "W3": 64 << 20, "W4": 256000, "W5": 256 << 20}
WHEEL = os.environ.get("UCX_WHEEL", "")
MM = {"UCX_MM_ERROR_HANDLING": "y"}
SEGMENTS = {"UCX_TLS": "tcp", "UCX_TCP_TX_SEG_SIZE": "256k", "UCX_TCP_RX_SEG_SIZE": "256k"}


def peers():
    rust, sockets, c = f"{TARGET}/release/examples/bench_peer", f"{TARGET}/release/examples/bench_sockets", f"{TARGET}/reference"
    found = []
    for version, env in (("113", {}), ("121", {"LD_LIBRARY_PATH": WHEEL})):
        if version == "121" and not WHEEL:
            continue
        found += [
            dict(id=f"rs{version}", label=f"this crate, UCX {version}", transport="shm", cmd=[rust], env=env),
            dict(id=f"c{version}", label=f"C reference, UCX {version}", transport="shm", cmd=[c], env={**MM, **env}),
            dict(id=f"rs{version}-tcp", label=f"this crate, UCX {version}", transport="tcp", cmd=[rust], env={**env, "UCX_TLS": "tcp"}),
            dict(id=f"c{version}-tcp", label=f"C reference, UCX {version}", transport="tcp", cmd=[c], env={**SEGMENTS, **env}),
        ]
        if shutil.which("ucx_perftest"):
            found += [dict(id=f"perf{version}", label=f"ucx_perftest -e, UCX {version}", transport="shm", perftest=True, env={**MM, **env})]
    found += [
        dict(id="uds", label="std UnixStream", transport="shm", cmd=[sockets, "unix"], env={}),
        dict(id="tcp", label="std TcpStream", transport="tcp", cmd=[sockets, "tcp"], env={}),
    ]
    return found


def build():
    subprocess.run(["cargo", "build", "-q", "--release", "--example", "bench_peer", "--example", "bench_sockets"], cwd=ROOT, check=True)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "ucx"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["cc", "-O2", "-o", f"{TARGET}/reference", f"{HERE}/reference.c", *flags], check=True)


def lines(text):
    for line in text.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def run_pair(peer, works, metrics, port):
    """The figures of one run: {(work, metric): value}."""
    env = {**os.environ, **peer["env"], "B_WORKS": ",".join(works), "B_METRICS": metrics}
    server = subprocess.Popen(peer["cmd"] + ["server", str(port)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first = server.stdout.readline()
        client = subprocess.run(peer["cmd"] + ["client", str(port)], env=env, capture_output=True, text=True, timeout=120)
        out, err = server.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        server.kill()
        sys.exit(f"{peer['id']}: no end within the time")
    if client.returncode or server.returncode:
        sys.exit(f"{peer['id']} failed:\n{client.stderr}{err}")
    figures = {}
    for line in lines(first + out + client.stdout):
        if line.get("side") == "recv" and line["m"] == "thr":
            figures[line["w"], "thr"] = line["n"] * line["size"] / (line["t1"] - line["t0"])
        if line.get("side") == "send" and line["m"] == "lat":
            figures[line["w"], "p50"], figures[line["w"], "p99"] = line["p50"], line["p99"]
    return figures


def run_perftest(peer, works, metrics, port):
    env, figures = {**os.environ, **peer["env"]}, {}
    for work in works:
        size = SIZES[work]
        count = str(max(10, min(200000, (1 << 30) // size)))
        for metric, test in (("thr", "tag_bw"), ("p50", "tag_lat")):
            if ("thr" if metric == "thr" else "lat") not in metrics:
                continue
            port += 1
            base = ["ucx_perftest", "-p", str(port), "-t", test, "-s", str(size), "-n", count, "-w", "20", "-e", "-f"]
            server = subprocess.Popen(base[:3], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            out = ""
            for _ in range(50):
                client = subprocess.run([base[0], "127.0.0.1", *base[1:]], env=env, capture_output=True, text=True, timeout=120)
                out = client.stdout
                if client.returncode == 0:
                    break
            server.wait(30)
            # typical, average, overall latency (us) | average, overall bandwidth (MB/s) | average, overall rate
            numbers = re.findall(r"[\d.]+", [line for line in out.splitlines() if "Final" in line or line.strip()][-1])
            if metric == "thr":
                figures[work, "thr"] = float(numbers[-1]) * size
            else:
                figures[work, "p50"] = float(numbers[-6])
    return figures


def number(metric, work, value):
    if metric == "thr":
        return f"{value / 8 / 1e6:.2f}M/s" if work == "W0" else f"{value / 1e9:.2f}"
    return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.2f}"


def tables(chosen, works, figures):
    titles = {"thr": "Throughput (W0: messages/s, others: GB/s)", "p50": "Latency, half the round trip, p50 (us)", "p99": "The same, p99 (us)"}
    for transport, name in (("shm", "One host, shared memory"), ("tcp", "TCP over loopback")):
        rows = [peer for peer in chosen if peer["transport"] == transport]
        for metric, title in titles.items():
            if not any((peer["id"], work, metric) in figures for peer in rows for work in works):
                continue
            yield f"\n### {name}: {title}\n\n| peer | " + " | ".join(works) + " |\n|---|" + "---|" * len(works)
            for peer in rows:
                cells = []
                for work in works:
                    values = figures.get((peer["id"], work, metric))
                    cells.append(f"{number(metric, work, statistics.median(values))} ({number(metric, work, min(values))}-{number(metric, work, max(values))})" if values else "-")
                yield f"| {peer['label']} | " + " | ".join(cells) + " |"


def plot(chosen, works, figures, folder):
    """Bytes against rate and latency, a line a peer. Needs matplotlib; without it there are no plots, and it says so."""
    try:
        import matplotlib
    except ImportError:
        return print("SKIPPED: no plots, matplotlib is not installed")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tensordict-pipe"
    import matplotlib.pyplot as plt
    for transport in ("shm", "tcp"):
        for metric, label in (("thr", "bytes/s"), ("p50", "half round trip, us")):
            fig, axes = plt.subplots(figsize=(7, 4.5))
            for peer in (peer for peer in chosen if peer["transport"] == transport):
                points = sorted((SIZES[w], statistics.median(figures[peer["id"], w, metric])) for w in works if (peer["id"], w, metric) in figures)
                if points:
                    axes.plot(*zip(*points), marker="o", label=peer["label"], linewidth=2.5 if peer["id"].startswith("rs") else 1)
            if axes.lines:
                axes.set(xscale="log", yscale="log", xlabel="bytes in a message", ylabel=label, title=f"{transport}: {label}")
                axes.grid(True, which="both", alpha=0.2)
                axes.legend(fontsize=7)
                fig.tight_layout()
                fig.savefig(f"{folder}/{transport}-{metric}.svg", metadata={"Date": None})
            plt.close(fig)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", default="")
    parser.add_argument("--works", default="W0,W1,W2,W3,W4,W5")
    parser.add_argument("--metrics", default="thr,lat")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--extra")
    parser.add_argument("--out", default=f"{TARGET}/side_by_side")
    args = parser.parse_args()
    build()
    known = peers() + (json.load(open(args.extra)) if args.extra else [])
    chosen = [peer for peer in known if not args.peers or peer["id"] in args.peers.split(",")]
    works, figures, port = args.works.split(","), {}, random.randint(20000, 40000)
    for turn in range(args.runs):
        for peer in chosen:
            port += 20
            run = run_perftest if peer.get("perftest") else run_pair
            for (work, metric), value in run(peer, works, args.metrics, port).items():
                figures.setdefault((peer["id"], work, metric), []).append(value)
            print(f"round {turn + 1} of {args.runs}: {peer['id']}", file=sys.stderr)
    text = "\n".join(tables(chosen, works, figures))
    os.makedirs(args.out, exist_ok=True)
    with open(f"{args.out}/tables.md", "w") as out:
        out.write(text + "\n")
    with open(f"{args.out}/figures.json", "w") as out:
        json.dump({"|".join(key): values for key, values in figures.items()}, out, indent=0)
    plot(chosen, works, figures, args.out)
    print(text)


if __name__ == "__main__":
    main()
