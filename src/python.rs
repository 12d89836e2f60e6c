//! For those who know Python's `tensordict._ucxx`: what each of its methods, arguments, defaults and errors is here.
//!
//! This module holds no code. The last column names the tests that show the row, as `file::test`.
//!
//! # `TensorDictPipe`
//!
//! | Python | here | what differs | shown by |
//! | --- | --- | --- | --- |
//! | `TensorDictPipe(endpoint, consolidated=True, listener=None)` | [`Server::accept`], [`Listening::accept`] | an accepted connection is a pipe at once, with its listener; there is no bare endpoint | `server::pipes_outlive_their_server` |
//! | `TensorDictPipe.connect(host, port)` | [`Pipe::connect`] | retries for 5 s ([`connect_timeout`]); Python fails at once | `unplugged::a_listener_may_start_two_seconds_later`, `halves::the_deadline_of_connect` |
//! | `TensorDictPipe.listen(port)` | [`Pipe::listen`] | further clients are refused at once, Python leaves them hanging; [`PipeOptions::listener`] tells the port before a client is there | `unplugged::further_clients_are_refused_at_once_for_as_long_as_the_pipe_lives` |
//! | `consolidated=True` | [`PipeOptions::consolidated`], also `true` | none; both ends must agree | `stateless::the_modes_must_agree`, `halves::reading_ahead_ends_with_an_error_as_the_last_item` |
//! | `asend(td)` | [`Pipe::start_send`], [`Handle`] | a thread in place of an event loop; dropping the handle cancels nothing | `halves::started_sends_keep_their_order` |
//! | `send(td)` | [`Pipe::send`], [`send_timeout`], [`send_deadline`], [`Pipe::try_send`] | may be called anywhere | `halves::the_deadline_of_send` |
//! | `arecv()` | [`Pipe::start_recv`], [`Handle`] | the message of a dropped handle goes to the next receive | `halves::messages_of_dropped_handles_go_to_the_next_receives` |
//! | `recv()`, `td=None` | [`Pipe::recv`], [`recv_timeout`], [`recv_deadline`], [`Pipe::try_recv`] | a value: the next receive does not overwrite it, no `clone()` is needed | `values::kept_ones_never_change`, `halves::the_deadline_of_recv`, `halves::expired_receives_lose_nothing` |
//! | `recv(td)` | [`Pipe::recv_into`] | says whether it was received in place ([`Placed`]); `td` is replaced if it does not fit | `values::receiving_into_overwrites_exactly_when_the_layout_matches` |
//! | `recv(device=None)` | [`PipeOptions::device`], [`Device::Cpu`] | chosen for the pipe; the default is the CPU, not the sender's device; another is [`Error::Options`] | `unplugged::a_device_that_this_build_does_not_have`, `values::the_device_of_the_sender_is_a_label` |
//! | `aclose()`, `close()` | [`Pipe::close`], or dropping the pipe | waits until the peer has received everything, 5 s by default ([`close_timeout`]); takes the pipe, so no call can come later | `processes::what_was_sent_before_a_close_arrives`, `halves::the_deadline_of_close` |
//! | `closed` | [`Pipe::error`] | also says why | `halves::the_deadline_of_recv` |
//! | `async for td in pipe` | [`Pipe::iter`]; [`Pipe::results`]; [`Pipe::into_receiver`] | `iter` ends at an error, too, but [`Pipe::error`] has it | `halves::one_direction_ends_and_the_other_goes_on`, `halves::two_pipes_in_one_select` |
//! | `with pipe:`, `async with pipe:` | the scope of the variable | the drop closes | `halves::a_half_keeps_the_pipe_open` |
//! | `__del__` | `Drop` | closes, too, and during a panic does not wait long | `halves::a_pipe_that_is_dropped_by_a_panic_ends` |
//! | none | [`Pipe::split`], [`Pipe::join`] | two threads, both directions at once | `halves::a_gibibyte_in_both_directions_at_once` |
//! | none | [`PipeSender::shutdown`] | ends one direction | `halves::one_direction_ends_and_the_other_goes_on` |
//!
//! # `TensorDictServer`
//!
//! | Python | here | what differs | shown by |
//! | --- | --- | --- | --- |
//! | `TensorDictServer(port, consolidated=True)` | [`Server::bind`], [`PipeOptions::server`] | listens from the start, on the host that is given; port 0 takes a free one ([`Server::local_addr`]) | `server::a_server_on_every_interface_has_clients_on_each` |
//! | `serve(on_connect)` | [`Server::serve`] | a thread for each client in place of a task; returns when the handlers have, Python before that | `server::every_message_of_64_clients_is_accounted_for` |
//! | an exception in `on_connect` | a panic in the handler | ends the pipe of that client, and nothing else | `server::a_handler_that_panics_ends_its_own_pipe_only` |
//! | `async for pipe in server` | [`Server::incoming`], [`Server::accept`], [`accept_timeout`], [`Server::try_accept`] | none | `server::accepting_gives_up_in_time_and_not_before` |
//! | `close()`, `aclose()` | [`Server::close`], or dropping the server | ends every `accept` at once, Python within 0.5 s; the pipes live on in both | `server::closing_ends_every_accept` |
//! | `async with server:` | the scope of the variable | the drop closes | `server::pipes_outlive_their_server` |
//!
//! # `send_tensordict`, `recv_tensordict`
//!
//! | Python | here | what differs | shown by |
//! | --- | --- | --- | --- |
//! | `send_tensordict(endpoint, td, consolidated=True)` | [`send_tensordict`] | takes a pipe; `consolidated` has no default | `stateless::every_message_carries_its_metadata` |
//! | `recv_tensordict(endpoint, consolidated=True)` | [`recv_tensordict`] | likewise | `stateless::they_mix_with_the_messages_of_the_pipe` |
//! | `recv_tensordict(endpoint, td)` | [`recv_tensordict_into`] | `td` is replaced if it does not fit; Python leaves it and returns another | `stateless::into_a_tensordict_that_fits` |
//! | `device=None` | [`PipeOptions::device`] | as for the pipe | `unplugged::a_device_that_this_build_does_not_have` |
//!
//! # Errors
//!
//! | Python | here | shown by |
//! | --- | --- | --- |
//! | `ImportError`: ucxx is not installed | the program does not start without libucp; [`Error::Setup`] if UCX cannot be used | `env::without_libucp_the_loader_names_it`, `env::transports_that_do_not_exist_are_named` |
//! | `RuntimeError`: send or recv on a closed pipe | [`Error::Closed`]; after [`Pipe::close`] it does not compile | `halves::started_receives_end_with_the_peer` |
//! | `RuntimeError`: inside a running event loop | none: a call blocks its thread, whoever runs it | `halves::a_pipe_in_a_static` |
//! | `RuntimeError`: unknown protocol flag, same-schema flag before a schema | [`Error::Decode`], [`Error::Protocol`] | `hostile::flags` |
//! | `ValueError`: invalid uncollated header | [`Error::Decode`], before anything is allocated | `hostile::not_json_or_of_another_type`, `hostile::lengths` |
//! | `ValueError`, `KeyError`, `TypeError` while packing | [`Error::Encode`]; nothing was sent, the pipe goes on | `refused::a_refusal_changes_nothing`, `halves::trying_to_send_while_another_is_under_way` |
//! | `UCXXCanceledError`, `UCXXConnectionResetError` and others of ucxx | [`Error::Closed`] after a whole message, otherwise [`Error::Disconnected`] | `processes::what_was_sent_before_a_close_arrives`, `processes::a_receiver_sees_that_its_sender_was_killed` |
//! | two ends with another `consolidated`: garbage, or a hang | [`Error::Protocol`], which names both | `stateless::the_modes_must_agree` |
//! | the port is taken: "Device is busy" | [`Error::AddrInUse`] | `server::a_taken_port_is_named` |
//! | no timeout anywhere | [`Error::Timeout`] with its [`Phase`] | `resolver::the_deadline_of_resolve`, `halves::the_deadline_of_connect`, `halves::the_deadline_of_accept`, `src/server::the_handshake_has_a_deadline`, `halves::the_deadline_of_send`, `halves::the_deadline_of_recv`, `halves::the_deadline_of_close` |
//!
//! [`accept_timeout`]: crate::Server::accept_timeout
//! [`close_timeout`]: crate::PipeOptions::close_timeout
//! [`connect_timeout`]: crate::PipeOptions::connect_timeout
//! [`recv_deadline`]: crate::Pipe::recv_deadline
//! [`recv_timeout`]: crate::Pipe::recv_timeout
//! [`send_deadline`]: crate::Pipe::send_deadline
//! [`send_timeout`]: crate::Pipe::send_timeout
//! [`recv_tensordict_into`]: crate::recv_tensordict_into
//! [`recv_tensordict`]: crate::recv_tensordict
//! [`send_tensordict`]: crate::send_tensordict
//! [`Device::Cpu`]: crate::Device::Cpu
//! [`Error::AddrInUse`]: crate::Error::AddrInUse
//! [`Error::Closed`]: crate::Error::Closed
//! [`Error::Decode`]: crate::Error::Decode
//! [`Error::Disconnected`]: crate::Error::Disconnected
//! [`Error::Encode`]: crate::Error::Encode
//! [`Error::Options`]: crate::Error::Options
//! [`Error::Protocol`]: crate::Error::Protocol
//! [`Error::Setup`]: crate::Error::Setup
//! [`Error::Timeout`]: crate::Error::Timeout
//! [`Handle`]: crate::Handle
//! [`Listening::accept`]: crate::Listening::accept
//! [`Phase`]: crate::Phase
//! [`Pipe::close`]: crate::Pipe::close
//! [`Pipe::connect`]: crate::Pipe::connect
//! [`Pipe::error`]: crate::Pipe::error
//! [`Pipe::into_receiver`]: crate::Pipe::into_receiver
//! [`Pipe::iter`]: crate::Pipe::iter
//! [`Pipe::join`]: crate::Pipe::join
//! [`Pipe::listen`]: crate::Pipe::listen
//! [`Pipe::recv`]: crate::Pipe::recv
//! [`Pipe::recv_into`]: crate::Pipe::recv_into
//! [`Pipe::results`]: crate::Pipe::results
//! [`Pipe::send`]: crate::Pipe::send
//! [`Pipe::split`]: crate::Pipe::split
//! [`Pipe::start_recv`]: crate::Pipe::start_recv
//! [`Pipe::start_send`]: crate::Pipe::start_send
//! [`Pipe::try_recv`]: crate::Pipe::try_recv
//! [`Pipe::try_send`]: crate::Pipe::try_send
//! [`PipeOptions::consolidated`]: crate::PipeOptions::consolidated
//! [`PipeOptions::device`]: crate::PipeOptions::device
//! [`PipeOptions::listener`]: crate::PipeOptions::listener
//! [`PipeOptions::server`]: crate::PipeOptions::server
//! [`PipeSender::shutdown`]: crate::PipeSender::shutdown
//! [`Placed`]: crate::Placed
//! [`Server::accept`]: crate::Server::accept
//! [`Server::bind`]: crate::Server::bind
//! [`Server::close`]: crate::Server::close
//! [`Server::incoming`]: crate::Server::incoming
//! [`Server::local_addr`]: crate::Server::local_addr
//! [`Server::serve`]: crate::Server::serve
//! [`Server::try_accept`]: crate::Server::try_accept
