//! Sends ten TensorDicts: `sender HOST PORT`.

use anyhow::bail;
use tensordict_pipe::{tensordict, DType, Pipe, Tensor};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, host, port] = &args[..] else { bail!("usage: sender HOST PORT") };
    let mut pipe = Pipe::connect(host, port.parse()?)?; // tries for five seconds
    let mut td = tensordict!([]; "obs" => Tensor::zeros(DType::Float32, [64, 84])?)?.consolidate();
    for step in 0..10_u8 {
        td.get_mut("obs")?.as_slice_mut()?.fill(f32::from(step));
        pipe.send(&td)?; // the structure travels once; afterwards only the numbers do
    }
    pipe.close()?; // waits until the receiver has them all
    Ok(())
}
