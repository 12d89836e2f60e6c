//! The Rust side of the interoperability tests, the twin of `tests/interop/peer.py`. At the head of that file stands
//! what both do and print; `tests/interop/run` puts one at either end.

mod catalogue;
mod dump;
mod upstream;

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::process::{self, ExitCode};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use tensordict_pipe::{recv_tensordict, send_tensordict, tensordict, Pipe, PipeOptions, TensorDict};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const USAGE: &str =
    "interop_peer echo|drive|send|recv|serve|second|gather|crowd|cases (--connect HOST:PORT | --listen PORT) \
                     [--leaves] [--stateless] [--only NAME,...] [--linger] [--steady N] [--count N] [--clients N] \
                     [--first N] [--seconds N]\n\
     interop_peer upstream (--connect HOST:PORT | --listen PORT) --case NAME [--seconds N]";
/// Many processes may share few cores.
const PATIENCE: Duration = Duration::from_secs(60);
const WRONG_ECHO: u8 = 2;
const GAVE_UP: i32 = 3;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let seconds = args.seconds;
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(seconds));
        eprintln!("gave up after {seconds} seconds");
        process::exit(GAVE_UP);
    });
    match play(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            if error.is::<WrongEcho>() {
                ExitCode::from(WRONG_ECHO)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn play(args: &Args) -> Result<()> {
    match args.role.as_str() {
        "cases" => cases(args),
        "serve" => serve(args, echo),
        "second" => second(args),
        "gather" => gather(args),
        "crowd" => crowd(args),
        "echo" => echo(args.open()?),
        "drive" => drive(args.open()?, args),
        "send" => send(args.open()?, args),
        "recv" => recv(args.open()?, args),
        "upstream" => upstream::play(args),
        other => Err(format!("no role {other:?}").into()),
    }
}

fn cases(args: &Args) -> Result<()> {
    let mut out = io::stdout().lock();
    for (number, (name, _)) in args.catalogue()?.iter().enumerate() {
        writeln!(out, "{number} {name}")?;
    }
    Ok(())
}

fn echo(mut channel: Channel) -> Result<()> {
    let mut count = 0;
    while let Some(td) = channel.next()? {
        channel.send(&td)?;
        count += 1;
    }
    eprintln!("echoed {count}");
    Ok(channel.pipe.close()?)
}

fn drive(mut channel: Channel, args: &Args) -> Result<()> {
    let catalogue = args.catalogue()?;
    for (name, td) in &catalogue {
        exchange(&mut channel, name, td)?;
    }
    let steps = args.steady.unwrap_or(1000);
    for step in 0..steps {
        exchange(&mut channel, &format!("step {step}"), &catalogue::steady(step)?)?;
    }
    channel.pipe.close()?;
    eprintln!("{} TensorDicts and {steps} steps came back equal", catalogue.len());
    Ok(())
}

fn exchange(channel: &mut Channel, name: &str, td: &TensorDict) -> Result<()> {
    let context = |error| format!("{name}: {error}");
    channel.send(td).map_err(context)?;
    let echo = channel.recv().map_err(context)?;
    let (expected, got) = (dump::lines(td, true), dump::lines(&echo, true));
    if expected != got {
        return Err(WrongEcho(format!("{name}: the echo differs\nexpected:\n{expected}got:\n{got}")).into());
    }
    Ok(())
}

fn send(mut channel: Channel, args: &Args) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let steady = (0..args.steady.unwrap_or(0)).map(catalogue::steady);
    let catalogue = args.catalogue()?.into_iter().map(|(_, td)| Ok(td));
    let mut count = 0;
    for td in catalogue.chain(steady) {
        let td = td?;
        channel.send(&td).map_err(|error| format!("message {count}: {error}"))?;
        write!(out, "message {count}\n{}", dump::lines(&td, false))?;
        count += 1;
    }
    if args.linger && channel.next()?.is_some() {
        return Err("a message came where the end was due".into());
    }
    channel.pipe.close()?;
    writeln!(out, "end")?;
    eprintln!("sent {count}");
    Ok(out.flush()?)
}

fn recv(mut channel: Channel, args: &Args) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut count = 0;
    while args.count != Some(count) {
        match channel.next()? {
            Some(td) => write!(out, "message {count}\n{}", dump::lines(&td, false))?,
            None if args.count.is_some() => return Err(format!("closed after {count} messages").into()),
            None => break,
        }
        count += 1;
    }
    channel.pipe.close()?;
    writeln!(out, "end")?;
    eprintln!("received {count}");
    Ok(out.flush()?)
}

fn serve(args: &Args, client: impl Fn(Channel) -> Result<()> + Sync) -> Result<()> {
    let server = args.options().server(args.listen.ok_or("a server needs --listen")?)?;
    eprintln!("listening");
    let results = Mutex::new(Vec::new());
    server.serve(|pipe| {
        let result = client(args.channel(pipe));
        let mut results = results.lock().expect("no client panics");
        results.push(result);
        if results.len() == args.clients {
            server.close();
        }
    });
    results.into_inner().expect("no client panics").into_iter().collect::<Result<()>>()?;
    eprintln!("{} clients have left", args.clients);
    Ok(())
}

fn second(args: &Args) -> Result<()> {
    let mut channel = args.open()?;
    match args.open() {
        Err(error) if matches!(error.downcast_ref(), Some(tensordict_pipe::Error::Refused { .. })) => {
            eprintln!("refused: {error}");
        }
        Err(error) => return Err(error),
        Ok(_) => return Err("the second pipe is connected".into()),
    }
    exchange(&mut channel, "the first pipe", &note(0, 0)?)?;
    Ok(channel.pipe.close()?)
}

fn gather(args: &Args) -> Result<()> {
    let (last, everybody) = (args.steady.unwrap_or(0) as i64, Barrier::new(args.clients));
    let clients = Mutex::new(BTreeSet::new());
    serve(args, |mut channel| {
        let mut next = 0;
        let mut number = None;
        while let Some(td) = channel.next()? {
            let client = *number.get_or_insert(td.get("client")?.as_slice::<i64>()?[0]);
            if td != note(client, next)? {
                return Err(format!("not message {next} of client {client}: {td:?}").into());
            }
            // All are connected; all are in the midst of their streams.
            if next == 0 || next == last / 2 {
                everybody.wait();
            }
            if next == 0 || next == last {
                channel.send(&td)?;
            }
            next += 1;
        }
        let number = number.ok_or("a client that sent nothing")?;
        if next != last + 1 || !clients.lock().expect("no client panics").insert(number) {
            return Err(format!("client {number} left, or another of that number, after {next} messages").into());
        }
        Ok(channel.pipe.close()?)
    })?;
    let clients = clients.into_inner().expect("no client panics");
    if !clients.iter().copied().eq(0..args.clients as i64) {
        return Err(format!("the clients were {clients:?}").into());
    }
    eprintln!("each has sent messages 0 to {last}");
    Ok(())
}

fn crowd(args: &Args) -> Result<()> {
    let last = args.steady.unwrap_or(0) as i64;
    let client = |number| {
        let mut channel = args.open()?;
        channel.send(&note(number, 0)?)?;
        channel.recv()?;
        for sequence in 1..=last {
            channel.send(&note(number, sequence)?)?;
        }
        channel.recv()?;
        Ok(channel.pipe.close()?)
    };
    thread::scope(|scope| {
        let numbers = args.first..args.first + args.clients as i64;
        let clients: Vec<_> = numbers.map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("no panic"))
    })
}

/// A message of a crowd, whose every number depends on both; now and then a large one.
fn note(client: i64, sequence: i64) -> Result<TensorDict> {
    let len = if sequence % 10 == 9 { 20_000 } else { 4 };
    let x = vec![client << 32 | sequence; len];
    Ok(tensordict!([]; "client" => vec![client], "sequence" => vec![sequence], "x" => x)?)
}

/// A pipe, through which the stateless functions may be used in its place.
struct Channel {
    pipe: Pipe,
    consolidated: bool,
    stateless: bool,
}

impl Channel {
    fn send(&mut self, td: &TensorDict) -> Result<(), tensordict_pipe::Error> {
        match self.stateless {
            true => send_tensordict(&mut self.pipe, td, self.consolidated),
            false => self.pipe.send(td),
        }
    }

    fn recv(&mut self) -> Result<TensorDict, tensordict_pipe::Error> {
        match self.stateless {
            true => recv_tensordict(&mut self.pipe, self.consolidated),
            false => self.pipe.recv(),
        }
    }

    /// The next TensorDict; none if the other side has closed.
    fn next(&mut self) -> Result<Option<TensorDict>> {
        match self.recv() {
            Err(error) if error.is_closed() => Ok(None),
            received => Ok(Some(received?)),
        }
    }
}

struct Args {
    role: String,
    connect: Option<(String, u16)>,
    listen: Option<u16>,
    leaves: bool,
    stateless: bool,
    linger: bool,
    steady: Option<usize>,
    count: Option<usize>,
    clients: usize,
    first: i64,
    case: String,
    only: Option<Vec<String>>,
    seconds: u64,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut args = Self {
            role: words.next().ok_or("no role")?,
            connect: None,
            listen: None,
            leaves: false,
            stateless: false,
            linger: false,
            steady: None,
            count: None,
            clients: 1,
            first: 0,
            case: String::new(),
            only: None,
            seconds: 120,
        };
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "--connect" => {
                    let place = value()?;
                    let (host, port) = place.rsplit_once(':').ok_or("--connect needs HOST:PORT")?;
                    args.connect = Some((host.to_owned(), port.parse()?));
                }
                "--listen" => args.listen = Some(value()?.parse()?),
                "--leaves" => args.leaves = true,
                "--stateless" => args.stateless = true,
                "--linger" => args.linger = true,
                "--steady" => args.steady = Some(value()?.parse()?),
                "--count" => args.count = Some(value()?.parse()?),
                "--clients" => args.clients = value()?.parse()?,
                "--first" => args.first = value()?.parse()?,
                "--only" => args.only = Some(value()?.split(',').map(str::to_owned).collect()),
                "--case" => args.case = value()?,
                "--seconds" => args.seconds = value()?.parse()?,
                _ => return Err(format!("no option {option}").into()),
            }
        }
        Ok(args)
    }

    fn consolidated(&self) -> bool {
        !self.leaves
    }

    fn catalogue(&self) -> Result<Vec<(String, TensorDict)>> {
        let mut named = catalogue::all(self.consolidated())?;
        if let Some(only) = &self.only {
            named.retain(|(name, _)| name == "last" || only.contains(name));
        }
        Ok(named)
    }

    fn options(&self) -> PipeOptions {
        Pipe::options()
            .consolidated(self.consolidated())
            .connect_timeout(PATIENCE)
            .handshake_timeout(PATIENCE)
            .close_timeout(PATIENCE)
    }

    fn open(&self) -> Result<Channel> {
        let pipe = match (&self.connect, self.listen) {
            (Some((host, port)), None) => self.options().connect(host, *port)?,
            (None, Some(port)) => {
                let listening = self.options().listener(port)?;
                eprintln!("listening");
                listening.accept()?
            }
            _ => return Err("one of --connect and --listen".into()),
        };
        Ok(self.channel(pipe))
    }

    fn channel(&self, pipe: Pipe) -> Channel {
        eprintln!("over {}", pipe.transports().join(", "));
        Channel { pipe, consolidated: self.consolidated(), stateless: self.stateless }
    }
}

/// Both dumps.
#[derive(Debug)]
struct WrongEcho(String);

impl std::fmt::Display for WrongEcho {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for WrongEcho {}
