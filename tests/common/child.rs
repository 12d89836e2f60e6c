//! [`Child`]: another process of the same test program, in a role.
//!
//! A test file that starts children has a hidden test, `child`, which is ignored unless a [`Child`] runs it: it asks
//! [`role`] what to do. Lines that the child [`say`]s are read with [`Child::hear`].

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, process, thread};

const ROLE: &str = "TENSORDICT_PIPE_TEST_ROLE";
const ARGUMENTS: &str = "TENSORDICT_PIPE_TEST_ARGUMENTS";
/// Tells what a child says from what the test harness and UCX print.
const MARK: &str = "child says ";
/// A child that takes longer is stuck.
const WATCHDOG: Duration = Duration::from_secs(120);

/// What this process is to do, if it is a child: a role and its arguments.
pub(crate) fn role() -> Option<(String, Vec<String>)> {
    let role = env::var(ROLE).ok()?;
    thread::spawn(|| {
        thread::sleep(WATCHDOG);
        eprintln!("child stuck for {WATCHDOG:?}");
        process::exit(3);
    });
    let arguments = env::var(ARGUMENTS).unwrap_or_default();
    Some((role, arguments.split_whitespace().map(str::to_owned).collect()))
}

/// Tells the parent a line. The harness may have left its own line unfinished.
pub(crate) fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush()).expect("the parent listens");
}

/// Killed when dropped.
pub(crate) struct Child {
    process: process::Child,
    said: mpsc::Receiver<String>,
    role: String,
}

impl Child {
    /// Starts this program again as `role`, with the variables `env` set.
    pub(crate) fn start(role: &str, arguments: &str, env: &[(&str, &str)]) -> Self {
        Self::start_by(Command::new(env::current_exe().expect("a path")), role, arguments, env)
    }

    /// As [`Child::start`], with a command that runs this program with the arguments that are added to it.
    pub(crate) fn start_by(mut command: Command, role: &str, arguments: &str, env: &[(&str, &str)]) -> Self {
        command.args(["child", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(ARGUMENTS, arguments).env("UCX_LOG_FILE", "stderr").envs(env.iter().copied());
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
        let stdout = BufReader::new(process.stdout.take().expect("piped"));
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix(MARK) {
                    let _ = sender.send(line.to_owned());
                }
            }
        });
        Self { process, said, role: role.to_owned() }
    }

    /// The next line that the child says.
    pub(crate) fn hear(&self) -> String {
        let said = self.said.recv_timeout(WATCHDOG);
        said.unwrap_or_else(|error| panic!("the child {} said nothing: {error}", self.role))
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// `kill -9`; the time when it was done.
    pub(crate) fn kill(&mut self) -> Instant {
        self.process.kill().expect("the child is there");
        let now = Instant::now();
        self.process.wait().expect("the child ends");
        now
    }

    /// Waits until the child has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait().expect("the child ends")
    }

    /// Waits until the child has ended, which it must have done well.
    pub(crate) fn succeed(mut self) {
        let status = self.wait();
        assert!(status.success(), "the child {}: {status}", self.role);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
