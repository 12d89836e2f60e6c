#!/usr/bin/env python3
"""Runs peers side by side, in turn, and writes a table and a plot of each metric.

    benches/side_by_side/run.py [--peers ID,ID] [--works W1,1Mx10000,4Gx1] [--runs 5] [--many N] [--list]
                                [--extra FILE] [--out FOLDER]

A pair of processes on this host follows the schedule of examples/bench_schedule and prints its JSON lines: the server
receives, the client sends. One round runs every peer once; the figures are medians over the rounds, so a machine that
changes its speed changes it for all. Only ratios mean anything: close other work. B_TW and B_TM are the seconds of the
warm-up and of what is measured. --many N runs N pairs of each peer at the same time, against one pair in the same round.

`113` is the UCX that the system has, `121` the one of Python's wheel. A peer that cannot run here is SKIPPED, and it says
why. For all of them, on Debian or Ubuntu:

    apt-get install build-essential pkg-config libucx-dev ucx-utils libzmq3-dev libclang-dev clang openmpi-bin libopenmpi-dev python3-venv
    export INTEROP_PYTHON=$(tests/interop/env)        # tensordict, torch, ucxx and UCX's wheel
    export UCX_WHEEL=$(echo ${INTEROP_PYTHON%/bin/*}/lib/python3*/site-packages/libucx/lib)
    pip install matplotlib                            # for the plots, into the Python that runs this

Others come from --extra, a JSON list of {"id", "label", "transport": "shm"|"tcp", "cmd": [...], "env": {...}}, run as
`CMD server PORT`, which prints a first line when it listens, and `CMD client PORT`.
"""
import argparse, json, os, random, statistics, sys
from concurrent.futures import ThreadPoolExecutor

from launch import TABLE, TARGET, Failed, figures_of, peers, prepare, run_pair, shape


def number(metric, work, value):
    if metric == "thr":
        return f"{value / 8 / 1e6:.2f}M/s" if work == "W0" else f"{value / 1e9:.2f}"
    return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.2f}"


def tables(chosen, works, figures):
    titles = {"thr": "Throughput (W0: messages/s, others: GB/s)", "p50": "Latency, half the round trip, p50 (us)", "p99": "The same, p99 (us)",
              "each": "Time per message while streaming (us)"}
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
    """Bytes, and leaves where they differ, against each metric; a line a peer. Needs matplotlib, and says so."""
    try:
        import matplotlib
    except ImportError:
        return print("SKIPPED: plots: no matplotlib: pip install matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tensordict-pipe"
    import matplotlib.pyplot as plt
    grown = [work for work in works if work not in TABLE]
    charts = [("thr", "bytes/s", works, 0), ("p50", "half round trip, us", works, 0)]
    charts += [("each", "us per message", grown, 0), ("each", "us per message", grown, 1)]
    for transport in ("shm", "tcp"):
        for metric, label, shown, axis in charts:
            fig, axes = plt.subplots(figsize=(7, 4.5))
            for peer in (peer for peer in chosen if peer["transport"] == transport):
                # One line for all that the axis does not show, else it would jump.
                lines = {}
                for work in (work for work in shown if (peer["id"], work, metric) in figures):
                    other = "" if work in TABLE else f", {shape(work)[1]} leaves" if axis == 0 else f", {work.split('x')[0]}"
                    lines.setdefault(other, []).append((shape(work)[axis], statistics.median(figures[peer["id"], work, metric])))
                for other, points in lines.items():
                    width = 2.5 if peer["id"].startswith("rs") else 1
                    axes.plot(*zip(*sorted(points)), marker="o", label=peer["label"] + other, linewidth=width)
            if axes.lines:
                name = ("bytes", "leaves")[axis]
                axes.set(xscale="log", yscale="log", xlabel=f"{name} in a message", ylabel=label, title=f"{transport}: {label}")
                axes.grid(True, which="both", alpha=0.2)
                axes.legend(fontsize=7)
                fig.tight_layout()
                fig.savefig(f"{folder}/{transport}-{metric}-{name}.svg", metadata={"Date": None})
            plt.close(fig)


def rates(peer, work, count, port):
    """Of `count` pairs at the same time: each one's bytes/s, and how much of the measured time they all share."""
    with ThreadPoolExecutor(count) as pool:
        runs = list(pool.map(lambda i: run_pair(peer, [work], "thr", port + i), range(count)))
    lines = [line for run in runs for line in run if line.get("side") == "recv"]
    shared = min(line["t1"] for line in lines) - max(line["t0"] for line in lines)
    span = max(line["t1"] for line in lines) - min(line["t0"] for line in lines)
    return [line["n"] * line["size"] / (line["t1"] - line["t0"]) for line in lines], max(0.0, shared / span)


def many(chosen, works, count, runs, port):
    # All have started when the first one begins to measure.
    os.environ.setdefault("B_TW", "1")
    os.environ.setdefault("B_TM", "2")
    for peer in (peer for peer in chosen if peer.get("build") in ("rust", "c") and peer["cmd"]):
        for work in works:
            sums, slowest, overlaps = [], [], []
            for _ in range(runs):
                port += count + 1
                (one,), _ = rates(peer, work, 1, port)
                each, overlap = rates(peer, work, count, port + 1)
                sums.append(sum(each) / one)
                slowest.append(min(each) * count / sum(each))
                overlaps.append(overlap)
            print(f"{peer['id']} {work}: {count} pairs carry {statistics.median(sums):.2f} of one pair's rate; the slowest has "
                  f"{statistics.median(slowest):.2f} of the mean; at the same time for {min(overlaps):.0%} of the measured time")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", default="")
    parser.add_argument("--works", default="W0,W1,W2,W3,W4,W5")
    parser.add_argument("--metrics", default="thr,lat")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--many", type=int)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--extra")
    parser.add_argument("--out", default=f"{TARGET}/side_by_side")
    args = parser.parse_args()
    known = peers() + (json.load(open(args.extra)) if args.extra else [])
    if args.list:
        return print("\n".join(f"{peer['id']:<14}{peer['transport']}  {peer['label']}" for peer in known))
    wanted = args.peers.split(",") if args.peers else [peer["id"] for peer in known]
    if unknown := set(wanted) - {peer["id"] for peer in known}:
        sys.exit(f"no such peer: {', '.join(sorted(unknown))}")
    chosen = prepare([peer for peer in known if peer["id"] in wanted])
    works, figures, failed, port = args.works.split(","), {}, {}, random.randint(12000, 30000)
    if args.many:
        return many(chosen, works, args.many, args.runs, port)
    for turn in range(args.runs):
        for peer in (peer for peer in chosen if peer["id"] not in failed):
            port = 12000 + (port + 2 * len(works) + 2) % 18000
            print(f"round {turn + 1} of {args.runs}: {peer['id']}", file=sys.stderr)
            try:
                run = figures_of(peer, works, args.metrics, port)
            except Failed as why:
                failed[peer["id"]] = why
                continue
            for (work, metric), value in run.items():
                figures.setdefault((peer["id"], work, metric), []).append(value)
                if metric == "thr" and work not in TABLE:
                    figures.setdefault((peer["id"], work, "each"), []).append(shape(work)[0] / value * 1e6)
    text = "\n".join(tables(chosen, works, figures))
    os.makedirs(args.out, exist_ok=True)
    with open(f"{args.out}/tables.md", "w") as out:
        out.write(text + "\n")
    with open(f"{args.out}/figures.json", "w") as out:
        json.dump({"|".join(key): values for key, values in figures.items()}, out, indent=0)
    plot(chosen, works, figures, args.out)
    print(text)
    for id, why in failed.items():
        print(f"FAILED: {id}: {why}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
