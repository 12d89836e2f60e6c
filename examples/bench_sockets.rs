//! The peer that needs no library: `bench_sockets unix|tcp server|client PORT`, each message a length and its bytes over
//! std's streams. Same schedule and output as `bench_peer`, whose loops it uses.

use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

mod bench_schedule;
use bench_schedule::{run, Link, Result, Work};

struct Framed<S> {
    stream: S,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl<S: Read + Write> Link for Framed<S> {
    fn begin(&mut self, work: &Work) -> Result<()> {
        self.sent = vec![1; work.size];
        self.received = vec![1; work.size];
        Ok(())
    }

    fn send(&mut self, counter: u64) -> Result<()> {
        self.sent[..8].copy_from_slice(&counter.to_le_bytes());
        let length = (self.sent.len() as u64).to_le_bytes();
        let written = self.stream.write_vectored(&[IoSlice::new(&length), IoSlice::new(&self.sent)])?;
        if written < 8 {
            self.stream.write_all(&length[written..])?;
        }
        Ok(self.stream.write_all(&self.sent[written.saturating_sub(8)..])?)
    }

    fn recv<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let mut length = [0; 8];
        self.stream.read_exact(&mut length)?;
        if u64::from_le_bytes(length) != self.received.len() as u64 {
            return Err("a message of another length".into());
        }
        self.stream.read_exact(&mut self.received)?;
        Ok(read(&self.received))
    }
}

fn retry<T>(mut connect: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    for _ in 0..200 {
        if let Ok(stream) = connect() {
            return Ok(stream);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    connect()
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, kind, role, port] = &args[..] else {
        return Err("usage: bench_sockets unix|tcp server|client PORT".into());
    };
    let serves = role == "server";
    let framed = |stream| Framed { stream, sent: Vec::new(), received: Vec::new() };
    if kind == "tcp" {
        let address = ("127.0.0.1", port.parse()?);
        let stream = if serves {
            let listener = TcpListener::bind(address)?;
            println!(r#"{{"ready":1}}"#);
            listener.accept()?.0
        } else {
            retry(|| TcpStream::connect(address))?
        };
        stream.set_nodelay(true)?;
        let mut link = framed(stream);
        link.stream.flush()?;
        return run(&mut link, serves);
    }
    let path = std::env::temp_dir().join(format!("bench-sockets-{port}"));
    let stream = if serves {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        println!(r#"{{"ready":1}}"#);
        listener.accept()?.0
    } else {
        retry(|| UnixStream::connect(&path))?
    };
    let mut link = Framed { stream, sent: Vec::new(), received: Vec::new() };
    let done = run(&mut link, serves);
    let _ = std::fs::remove_file(&path);
    done
}
