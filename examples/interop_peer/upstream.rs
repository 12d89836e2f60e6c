//! Rust's halves of the cases that `tests/interop/upstream.txt` lists as `both`; Python's are in `upstream.py` beside it.
//!
//! Who connects sends, who listens receives. Where the original looks at what a fake endpoint has recorded, this looks at
//! the counters of the pipe: a message that announces its schema is a `schema_changes`.

use std::collections::BTreeSet;
use std::sync::Mutex;

use tensordict_pipe::{tensordict, DataError, Pipe, Placed, Shape, Tensor, TensorDict};

use crate::{Args, Result};

/// One end of a case.
type Half = fn(&mut Pipe) -> Result<()>;

/// The name that tensordict's tests have for it, who sends and who receives.
const CASES: &[(&str, Half, Half)] = &[
    ("TestProtocolConsolidated::test_first_send_includes_metadata", send_once, first_send_includes_metadata),
    ("TestProtocolConsolidated::test_second_send_same_schema_skips_metadata", send_twice, second_send_skips_metadata),
    ("TestProtocolConsolidated::test_schema_change_resends_metadata", send_another, schema_change_resends_metadata),
    ("TestRoundtrip::test_consolidated_roundtrip", send_once, recv_once),
    ("TestRoundtrip::test_consolidated_steady_state_inplace", send_updated, recv_updated_in_place),
    ("TestRoundtrip::test_nested_tensordict_roundtrip", send_nested, recv_nested),
    ("TestTensorDictSendRecvOverload::test_send_dispatches_to_pipe", send_three, recv_three_as_first),
    ("TestTensorDictSendRecvOverload::test_recv_dispatches_to_pipe", send_three, recv_three_into_zero),
    ("TestUCXXIntegration::test_pipe_connect_listen", send_two, recv_two),
    ("TestUCXXIntegration::test_pipe_steady_state", send_steady, recv_steady),
    ("TestUCXXIntegration::test_context_manager", send_vector, recv_vector),
    ("TestUCXXIntegration::test_td_send_recv_overload", send_five, recv_five_into_empty),
];

pub(crate) fn play(args: &Args) -> Result<()> {
    let sends = args.connect.is_some();
    if args.case == "TestTensorDictServer::test_serve_multiple_clients" {
        return if sends { two_clients(args) } else { serve_two_clients(args) };
    }
    let case = CASES.iter().find(|(name, ..)| *name == args.case);
    let (_, send, recv) = case.ok_or_else(|| format!("no case {}", args.case))?;
    let mut pipe = args.open()?.pipe;
    if sends {
        send(&mut pipe)?;
        ended(&mut pipe)?;
    } else {
        recv(&mut pipe)?;
    }
    if args.case.ends_with("::test_context_manager") {
        // The end of the scope is enough.
        return Ok(());
    }
    Ok(pipe.close()?)
}

/// Who sends stays until the receiver has left.
fn ended(pipe: &mut Pipe) -> Result<()> {
    let error = pipe.recv().err().ok_or("a message came where the end was due")?;
    if error.is_closed() {
        Ok(())
    } else {
        Err(error.into())
    }
}

// TestProtocolConsolidated

fn batch() -> Result<TensorDict, DataError> {
    tensordict!([3]; "a" => counted([3, 4]), "b" => counted([3, 2]))
}

fn send_once(pipe: &mut Pipe) -> Result<()> {
    pipe.send(&batch()?)?;
    assert_eq!(pipe.info().sent.schema_changes, 1);
    Ok(())
}

fn first_send_includes_metadata(pipe: &mut Pipe) -> Result<()> {
    assert_eq!(pipe.recv()?, batch()?);
    assert_eq!(pipe.info().received.schema_changes, 1);
    Ok(())
}

fn send_twice(pipe: &mut Pipe) -> Result<()> {
    pipe.send(&batch()?)?;
    pipe.send(&batch()?)?;
    assert_eq!(pipe.info().sent.schema_changes, 1);
    Ok(())
}

fn second_send_skips_metadata(pipe: &mut Pipe) -> Result<()> {
    pipe.recv()?;
    assert_eq!(pipe.recv()?, batch()?);
    assert_eq!(pipe.info().received.schema_changes, 1);
    Ok(())
}

fn another() -> Result<TensorDict, DataError> {
    tensordict!([5]; "x" => counted([5]))
}

fn send_another(pipe: &mut Pipe) -> Result<()> {
    pipe.send(&batch()?)?;
    pipe.send(&another()?)?;
    assert_eq!(pipe.info().sent.schema_changes, 2);
    Ok(())
}

fn schema_change_resends_metadata(pipe: &mut Pipe) -> Result<()> {
    pipe.recv()?;
    assert_eq!(pipe.recv()?, another()?);
    assert_eq!(pipe.info().received.schema_changes, 2);
    Ok(())
}

// TestRoundtrip

fn recv_once(pipe: &mut Pipe) -> Result<()> {
    let td = pipe.recv()?;
    assert_eq!(td.keys().collect::<BTreeSet<_>>(), BTreeSet::from(["a", "b"]));
    assert_eq!(td, batch()?);
    Ok(())
}

fn four(numbers: &[(&str, f32)]) -> Result<TensorDict, DataError> {
    let mut td = TensorDict::new([4]);
    numbers.iter().try_for_each(|&(name, number)| td.insert(name, [number; 4]))?;
    Ok(td)
}

fn send_updated(pipe: &mut Pipe) -> Result<()> {
    pipe.send(&four(&[("a", 1.0), ("b", 0.0)])?)?;
    Ok(pipe.send(&four(&[("a", 42.0), ("b", 99.0)])?)?)
}

fn recv_updated_in_place(pipe: &mut Pipe) -> Result<()> {
    let mut td = pipe.recv()?;
    assert_eq!(td, four(&[("a", 1.0), ("b", 0.0)])?);
    assert_eq!(pipe.recv_into(&mut td)?, Placed::InPlace);
    assert_eq!(td, four(&[("a", 42.0), ("b", 99.0)])?);
    Ok(())
}

fn nested() -> Result<TensorDict, DataError> {
    tensordict!([2]; "obs" => counted([2, 3]), "info" => { "reward" => [1.0_f32, 2.0] })
}

fn send_nested(pipe: &mut Pipe) -> Result<()> {
    Ok(pipe.send(&nested()?)?)
}

fn recv_nested(pipe: &mut Pipe) -> Result<()> {
    let td = pipe.recv()?;
    assert_eq!(td.get("obs")?.as_slice::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(td.get(("info", "reward"))?.as_slice::<f32>()?, [1.0, 2.0]);
    assert_eq!(td, nested()?);
    Ok(())
}

// TestTensorDictSendRecvOverload: here a TensorDict has no methods for it, and every call blocks.

fn send_three(pipe: &mut Pipe) -> Result<()> {
    pipe.send(&four(&[("a", 3.0)])?)?;
    assert_eq!(pipe.info().sent.schema_changes, 1);
    Ok(())
}

fn recv_three_as_first(pipe: &mut Pipe) -> Result<()> {
    assert_eq!(pipe.recv()?, four(&[("a", 3.0)])?);
    assert_eq!(pipe.info().received.schema_changes, 1);
    Ok(())
}

fn recv_three_into_zero(pipe: &mut Pipe) -> Result<()> {
    let mut td = four(&[("a", 0.0)])?;
    pipe.recv_into(&mut td)?;
    assert_eq!(td, four(&[("a", 3.0)])?);
    Ok(())
}

// TestUCXXIntegration

fn two() -> Result<TensorDict, DataError> {
    tensordict!([]; "x" => counted([10]), "y" => counted([5, 3]))
}

fn send_two(pipe: &mut Pipe) -> Result<()> {
    Ok(pipe.send(&two()?)?)
}

fn recv_two(pipe: &mut Pipe) -> Result<()> {
    assert_eq!(pipe.recv()?, two()?);
    Ok(())
}

fn eight(number: f32) -> Result<TensorDict, DataError> {
    tensordict!([8]; "v" => [number; 8])
}

fn send_steady(pipe: &mut Pipe) -> Result<()> {
    pipe.send(&eight(1.0)?)?;
    Ok(pipe.send(&eight(7.0)?)?)
}

/// In Python the second receive returns the first one's object, overwritten. Here that takes giving it up; what is
/// kept does not change.
fn recv_steady(pipe: &mut Pipe) -> Result<()> {
    let first = pipe.recv()?;
    assert_eq!(pipe.recv()?, eight(7.0)?);
    assert_eq!(first, eight(1.0)?);
    Ok(())
}

fn vector() -> Result<TensorDict, DataError> {
    tensordict!([3]; "a" => [1.0_f32, 2.0, 3.0])
}

fn send_vector(pipe: &mut Pipe) -> Result<()> {
    Ok(pipe.send(&vector()?)?)
}

fn recv_vector(pipe: &mut Pipe) -> Result<()> {
    assert_eq!(pipe.recv()?, vector()?);
    Ok(())
}

fn send_five(pipe: &mut Pipe) -> Result<()> {
    Ok(pipe.send(&four(&[("a", 5.0)])?)?)
}

fn recv_five_into_empty(pipe: &mut Pipe) -> Result<()> {
    let mut td = TensorDict::new([]);
    assert_eq!(pipe.recv_into(&mut td)?, Placed::Replaced);
    assert_eq!(td, four(&[("a", 5.0)])?);
    Ok(())
}

// TestTensorDictServer

fn two_clients(args: &Args) -> Result<()> {
    let mut pipes = [args.open()?.pipe, args.open()?.pipe];
    for (pipe, number) in pipes.iter_mut().zip([1.0_f32, 2.0]) {
        pipe.send(&tensordict!([]; "a" => [number])?)?;
    }
    pipes.iter_mut().try_for_each(ended)
}

fn serve_two_clients(args: &Args) -> Result<()> {
    let server = args.options().server(args.listen.ok_or("a server listens")?)?;
    eprintln!("listening");
    let received = Mutex::new(Vec::new());
    server.serve(|mut pipe| {
        let number = recv_number(&mut pipe);
        let mut received = received.lock().expect("no client panics");
        received.push(number);
        if received.len() == 2 {
            server.close();
        }
    });
    let mut numbers = received.into_inner().expect("no client panics").into_iter().collect::<Result<Vec<_>>>()?;
    numbers.sort_by(f32::total_cmp);
    assert_eq!(numbers, [1.0, 2.0]);
    Ok(())
}

fn recv_number(pipe: &mut Pipe) -> Result<f32> {
    Ok(pipe.recv()?.get("a")?.item()?)
}

/// 1, 2, ...
fn counted(shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    let elements: Vec<_> = (1..=shape.element_count().expect("small")).map(|n| n as f32).collect();
    Tensor::from_slice(&elements, shape).expect("counted")
}
