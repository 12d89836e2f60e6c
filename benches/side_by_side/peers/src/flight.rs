//! Arrow Flight over TCP: `flight server|client PORT`. One DoExchange for the whole schedule; a message is a `FlightData`
//! whose body is the bytes. gRPC receives it into memory that it allocates for it and gives away.

use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::{BoxStream, StreamExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codegen::Bytes;
use tonic::transport::{Endpoint, Server};
use tonic::{async_trait, Request, Response, Status, Streaming};

#[path = "../../../../examples/bench_schedule/mod.rs"]
mod bench_schedule;
use bench_schedule::{run, Link, Result, Work};

/// Of flow control, for a stream and a connection.
const WINDOW: u32 = 16 << 20;
/// Messages between the schedule and gRPC.
const QUEUED: usize = 2;

type Answer<T> = std::result::Result<T, Status>;
type Answers<T> = BoxStream<'static, Answer<T>>;

enum Outgoing {
    Client(mpsc::Sender<FlightData>),
    Server(mpsc::Sender<Answer<FlightData>>),
}

/// The ends of a DoExchange.
struct Exchange {
    /// Runs only while the schedule waits in it: no handing over to another thread for each message.
    runtime: Runtime,
    outgoing: Outgoing,
    incoming: Streaming<FlightData>,
    body: Vec<u8>,
}

impl Exchange {
    fn put(&mut self, data: FlightData) -> Result<()> {
        match &self.outgoing {
            Outgoing::Client(sender) => self.runtime.block_on(sender.send(data))?,
            Outgoing::Server(sender) => self.runtime.block_on(sender.send(Ok(data))).map_err(|_| "closed")?,
        }
        Ok(())
    }

    fn take(&mut self) -> Result<FlightData> {
        Ok(self.runtime.block_on(self.incoming.next()).ok_or("closed")??)
    }
}

impl Link for Exchange {
    fn begin(&mut self, work: &Work) -> Result<()> {
        self.body = vec![1; work.size];
        Ok(())
    }

    fn send(&mut self, counter: u64) -> Result<()> {
        self.body[..8].copy_from_slice(&counter.to_le_bytes());
        // gRPC keeps the bytes until they are sent, so they are its own.
        self.put(FlightData { data_body: Bytes::copy_from_slice(&self.body), ..FlightData::default() })
    }

    fn recv<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let data = self.take()?;
        if data.data_body.len() != self.body.len() {
            return Err("a message of another length".into());
        }
        Ok(read(&data.data_body))
    }

    fn streamed(&mut self, receives: bool) -> Result<()> {
        match receives {
            true => self.put(FlightData::default()),
            false => self.take().map(drop),
        }
    }
}

/// Hands what the client and the server exchange to the schedule.
struct Service(mpsc::Sender<(Streaming<FlightData>, mpsc::Sender<Answer<FlightData>>)>);

#[async_trait]
impl FlightService for Service {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Answer<Response<Self::DoExchangeStream>> {
        let (sender, answers) = mpsc::channel(QUEUED);
        self.0.send((request.into_inner(), sender)).await.map_err(|_| Status::unavailable("one client only"))?;
        Ok(Response::new(ReceiverStream::new(answers).boxed()))
    }

    async fn handshake(&self, _: Request<Streaming<HandshakeRequest>>) -> Answer<Response<Self::HandshakeStream>> {
        Err(Status::unimplemented(""))
    }
    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Response<Self::ListFlightsStream>> {
        Err(Status::unimplemented(""))
    }
    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<Response<FlightInfo>> {
        Err(Status::unimplemented(""))
    }
    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<Response<PollInfo>> {
        Err(Status::unimplemented(""))
    }
    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Answer<Response<SchemaResult>> {
        Err(Status::unimplemented(""))
    }
    async fn do_get(&self, _: Request<Ticket>) -> Answer<Response<Self::DoGetStream>> {
        Err(Status::unimplemented(""))
    }
    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Answer<Response<Self::DoPutStream>> {
        Err(Status::unimplemented(""))
    }
    async fn do_action(&self, _: Request<Action>) -> Answer<Response<Self::DoActionStream>> {
        Err(Status::unimplemented(""))
    }
    async fn list_actions(&self, _: Request<Empty>) -> Answer<Response<Self::ListActionsStream>> {
        Err(Status::unimplemented(""))
    }
}

async fn serve(port: u16) -> Result<(Outgoing, Streaming<FlightData>)> {
    let (sender, mut exchanges) = mpsc::channel(1);
    let service = FlightServiceServer::new(Service(sender)).max_decoding_message_size(usize::MAX);
    let service = service.max_encoding_message_size(usize::MAX);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!(r#"{{"ready":1}}"#);
    let nodelay =
        TcpListenerStream::new(listener).map(|stream| stream.and_then(|it| it.set_nodelay(true).map(|()| it)));
    let mut server = Server::builder().initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    tokio::spawn(server.add_service(service).serve_with_incoming(nodelay));
    let (incoming, sender) = exchanges.recv().await.ok_or("no client")?;
    Ok((Outgoing::Server(sender), incoming))
}

async fn connect(port: u16) -> Result<(Outgoing, Streaming<FlightData>)> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.tcp_nodelay(true);
    let endpoint = endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let client = FlightServiceClient::new(endpoint.connect_timeout(Duration::from_secs(5)).connect().await?);
    let mut client = client.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
    let (sender, messages) = mpsc::channel(QUEUED);
    let incoming = client.do_exchange(ReceiverStream::new(messages)).await?.into_inner();
    Ok((Outgoing::Client(sender), incoming))
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, role, port] = &args[..] else { return Err("usage: flight server|client PORT".into()) };
    let (serves, port) = (role == "server", port.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (outgoing, incoming) = if serves { runtime.block_on(serve(port))? } else { runtime.block_on(connect(port))? };
    let mut link = Exchange { runtime, outgoing, incoming, body: Vec::new() };
    run(&mut link, serves)?;
    // The client has everything, and leaves first; the server sees its end.
    if serves {
        let _ = link.runtime.block_on(link.incoming.next());
    }
    Ok(())
}
