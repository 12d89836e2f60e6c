"""The peers of run.py: what each needs, how it is built and how a pair of its processes is run."""
import json, os, re, shutil, subprocess, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TARGET = os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target")
WHEEL = os.environ.get("UCX_WHEEL", "")
TIMEOUT = 300
MM = {"UCX_MM_ERROR_HANDLING": "y"}
POLLING = {"UCXPY_PROGRESS_MODE": "polling"}
SEGMENTS = {"UCX_TLS": "tcp", "UCX_TCP_TX_SEG_SIZE": "256k", "UCX_TCP_RX_SEG_SIZE": "256k"}
TABLE = {"W0": (8, 1), "W1": (21504, 1), "W2": (1 << 20, 16), "W3": (64 << 20, 1), "W4": (256000, 1000), "W5": (256 << 20, 4)}
PYTHON = []


class Skip(Exception):
    """A peer cannot run here, and why."""


class Failed(Exception):
    """A peer ran, and not to its end."""


def shape(work):
    """Bytes and leaves of a workload, as bench_schedule reads its name."""
    if work in TABLE:
        return TABLE[work]
    digits, unit, leaves = re.fullmatch(r"(\d+)([kMG]?)x(\d+)", work).groups()
    return (int(digits) << {"": 0, "k": 10, "M": 20, "G": 30}[unit]) // int(leaves) // 8 * 8 * int(leaves), int(leaves)


def need(tool, package):
    if not shutil.which(tool):
        raise Skip(f"no {tool}: apt-get install {package}")


def make(*command, cwd=ROOT):
    """A build that fails though its tools are there is an error of ours: its output says which."""
    subprocess.run(command, cwd=cwd, check=True)


def build_rust():
    make("cargo", "build", "-q", "--release", "--example", "bench_peer", "--example", "bench_sockets")


def build_c():
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "ucx"], capture_output=True, text=True, check=True).stdout.split()
    make("cc", "-O2", "-o", f"{TARGET}/reference", f"{HERE}/reference.c", *flags)


def build_mpi():
    need("mpicc", "libopenmpi-dev")
    need("mpirun", "openmpi-bin")
    make("mpicc", "-O2", "-o", f"{TARGET}/mpi_peer", f"{HERE}/mpi_peer.c")


def build_peer(name):
    make("cargo", "build", "-q", "--release", "--target-dir", f"{TARGET}/peers", "--features", name, "--bin", name, cwd=f"{HERE}/peers")


def build_zeromq():
    if subprocess.run(["pkg-config", "--exists", "libzmq"]).returncode:
        raise Skip("no libzmq: apt-get install libzmq3-dev")
    build_peer("zeromq")


def build_iceoryx2():
    need("clang", "libclang-dev clang")
    build_peer("iceoryx2")


def find_python():
    if not PYTHON:
        found = os.environ.get("INTEROP_PYTHON") or subprocess.run([f"{ROOT}/tests/interop/env"], stdout=subprocess.PIPE, text=True).stdout.strip()
        if not found or subprocess.run([found, "-c", "import numpy, torch, ucxx, tensordict._ucxx"], capture_output=True).returncode:
            raise Skip("no Python with tensordict, torch and ucxx: apt-get install python3-venv, or set INTEROP_PYTHON")
        PYTHON.append(found)


def perftest(version):
    """The wheel has a ucx_perftest of its own: the system's dies on the wheel's library."""
    found = f"{os.path.dirname(WHEEL.rstrip('/'))}/bin/ucx_perftest" if version == "121" else "ucx_perftest"
    need(found, "ucx-utils (for 121: the pip wheel libucx-cu13)")
    return found


BUILDS = {"rust": build_rust, "c": build_c, "mpi": build_mpi, "zeromq": build_zeromq, "iceoryx2": build_iceoryx2,
          "flight": lambda: build_peer("flight"), "python": find_python}


def peers():
    rust, sockets, c = f"{TARGET}/release/examples/bench_peer", f"{TARGET}/release/examples/bench_sockets", f"{TARGET}/reference"
    found = []

    def add(id, transport, label, build, cmd=(), env={}, **more):
        found.append(dict(id=id, transport=transport, label=label, build=build, cmd=list(cmd), env=env, **more))

    for version, env in (("113", {}), ("121", {"LD_LIBRARY_PATH": WHEEL})):
        ucx = dict(ucx=version)
        add(f"rs{version}", "shm", f"this crate, UCX {version}", "rust", [rust], env, **ucx)
        add(f"rs{version}-loose", "shm", f"this crate, not consolidated, UCX {version}", "rust", [rust], {**env, "B_LOOSE": "1"}, **ucx)
        add(f"c{version}", "shm", f"C reference, UCX {version}", "c", [c], {**MM, **env}, **ucx)
        add(f"perf{version}", "shm", f"ucx_perftest -e, UCX {version}", None, env={**MM, **env}, perftest=True, **ucx)
        add(f"rs{version}-tcp", "tcp", f"this crate, UCX {version}", "rust", [rust], {**env, "UCX_TLS": "tcp"}, **ucx)
        add(f"rs{version}-tcp-256k", "tcp", f"this crate, segments of 256 KiB, UCX {version}", "rust", [rust], {**SEGMENTS, **env}, **ucx)
        add(f"c{version}-tcp", "tcp", f"C reference, UCX {version}", "c", [c], {**SEGMENTS, **env}, **ucx)
        add(f"perf{version}-tcp", "tcp", f"ucx_perftest -e, UCX {version}", None, env={**SEGMENTS, **env}, perftest=True, **ucx)
    add("py-poll", "shm", "Python TensorDictPipe, tuned (polling, shared memory)", "python", ["PYTHON", f"{HERE}/peer.py", "pipe"], {**POLLING, **MM})
    add("iox2", "shm", "iceoryx2, copied in and out", "iceoryx2", [f"{TARGET}/peers/release/iceoryx2"])
    add("mpi", "shm", "OpenMPI, vader", "mpi", btl=["vader,self"])
    add("zmq-ipc", "shm", "ZeroMQ, ipc://", "zeromq", [f"{TARGET}/peers/release/zeromq", "ipc"])
    add("uds", "shm", "std UnixStream", "rust", [sockets, "unix"])
    # As installed, UCX leaves shared memory out of endpoints with error handling.
    add("py", "tcp", "Python TensorDictPipe, as installed", "python", ["PYTHON", f"{HERE}/peer.py", "pipe"])
    add("gloo", "tcp", "torch.distributed, gloo", "python", ["PYTHON", f"{HERE}/peer.py", "gloo"])
    add("mpi-tcp", "tcp", "OpenMPI, tcp", "mpi", btl=["tcp,self", "--mca", "btl_tcp_if_include", "lo"])
    add("zmq-tcp", "tcp", "ZeroMQ, tcp://", "zeromq", [f"{TARGET}/peers/release/zeromq", "tcp"])
    add("flight", "tcp", "Arrow Flight", "flight", [f"{TARGET}/peers/release/flight"])
    add("tcp", "tcp", "std TcpStream", "rust", [sockets, "tcp"])
    return found


def prepare(chosen):
    """Builds what the chosen peers need; gives those that can run, and says why the others cannot."""
    built, ready = {}, []
    for peer in chosen:
        try:
            if peer.get("ucx") == "121" and not WHEEL:
                raise Skip("UCX_WHEEL is not set: pip install libucx-cu13, UCX_WHEEL=.../site-packages/libucx/lib")
            if peer.get("perftest"):
                perftest(peer["ucx"])
            build = peer.get("build")
            if build and build not in built:
                built[build] = ""
                try:
                    BUILDS[build]()
                except Skip as why:
                    built[build] = str(why)
            if build and built[build]:
                raise Skip(built[build])
            ready.append({**peer, "cmd": [PYTHON[0] if part == "PYTHON" else part for part in peer["cmd"]]})
        except Skip as why:
            print(f"SKIPPED: {peer['id']}: {why}")
    return ready


def run_pair(peer, works, metrics, port):
    """The JSON lines of both ends."""
    env = {**os.environ, "UCX_WARN_UNUSED_ENV_VARS": "n", "OMP_NUM_THREADS": "1", **peer["env"], "B_WORKS": ",".join(works), "B_METRICS": metrics}
    running = []
    try:
        if "btl" in peer:
            root = ["--allow-run-as-root"] if os.getuid() == 0 else []
            start = ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", *peer["btl"], "-n", "2"]
            running = [subprocess.Popen([*start, f"{TARGET}/mpi_peer"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]
            text = ""
        else:
            for role in ("server", "client"):
                running.append(subprocess.Popen(peer["cmd"] + [role, str(port)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
                if role == "server":
                    text = running[0].stdout.readline()
        ends = [process.communicate(timeout=TIMEOUT) for process in reversed(running)]
    except subprocess.TimeoutExpired:
        raise Failed(f"no end within {TIMEOUT} s")
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
    if any(process.returncode for process in running):
        raise Failed("".join(err for _, err in ends)[-2000:])
    text += "".join(out for out, _ in ends)
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def figures_of(peer, works, metrics, port):
    """The figures of one run: {(work, metric): value}; bytes/s and microseconds."""
    if peer.get("perftest"):
        return run_perftest(peer, works, metrics, port)
    figures, spent, lines = {}, {}, run_pair(peer, works, metrics, port)
    # What was queued during the warm-up must not count as speed: the longer of the two ends' times.
    for line in lines:
        if line.get("m") == "thr":
            spent[line["w"]] = max(spent.get(line["w"], 0), line["t1"] - line["t0"])
    for line in lines:
        if line.get("side") == "recv" and line["m"] == "thr":
            figures[line["w"], "thr"] = line["n"] * line["size"] / spent[line["w"]]
        if line.get("side") == "send" and line["m"] == "lat":
            figures[line["w"], "p50"], figures[line["w"], "p99"] = line["p50"], line["p99"]
    return figures


def run_perftest(peer, works, metrics, port):
    env, figures, tool = {**os.environ, "UCX_WARN_UNUSED_ENV_VARS": "n", **peer["env"]}, {}, perftest(peer["ucx"])
    for work in works:
        size = shape(work)[0]
        count = max(4, min(50000, (1 << 28) // size))
        for metric, test in (("thr", "tag_bw"), ("lat", "tag_lat")):
            if metric not in metrics:
                continue
            port += 1
            server = subprocess.Popen([tool, "-p", str(port), "-e"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                time.sleep(0.3)
                client = [tool, "127.0.0.1", "-p", str(port), "-t", test, "-s", str(size), "-n", str(count), "-w", str(max(1, count // 8)), "-e", "-f", "-v"]
                done = subprocess.run(client, env=env, capture_output=True, text=True, timeout=TIMEOUT)
            finally:
                server.terminate()
                server.wait()
            # iterations, percentile, average, overall latency (us), average, overall MiB/s, average, overall rate
            last = [line.split(",") for line in done.stdout.splitlines() if re.match(r"(\[thread 0\])?\s*\d+,", line)]
            if done.returncode or not last:
                raise Failed(f"{test} {work}: {(done.stderr or done.stdout)[-500:]}")
            if metric == "thr":
                figures[work, "thr"] = float(last[-1][5]) * (1 << 20)
            else:
                # Of few iterations it gives no true percentile: then the average.
                figures[work, "p50"] = float(last[-1][1 if count >= 1000 else 3])
    return figures
