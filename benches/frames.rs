//! Frames of a camera: many inferences of one model by every way to execute, with a driver in another process.
//!
//!     cargo bench --bench frames
//!
//! NNHAL_FRAMES is how many frames each way runs (10,000), NNHAL_MODEL which model. The ways take short turns, each round
//! beginning with another, so that what else the machine does falls on all of them, and none always follows the same.

mod common;

use common::{model, ms, setting, Daemon, Figures};
use nnhal::client::Mode;
use nnhal::client::PrepareOptions;
use nnhal::tool::driver::ServiceOptions;
use nnhal::tool::run::session::Session;
use nnhal::tool::run::values;
use std::time::Duration;

const MODES: [(&str, Mode); 5] = [
    ("sync", Mode::Sync),
    ("fenced", Mode::Fenced),
    ("burst", Mode::Burst),
    ("reusable", Mode::Reusable),
    ("fmq", Mode::Fmq),
];
/// Frames of a turn.
const TURN: usize = 20;
/// Frames at the start of a turn that do not count: mappings are made, and a burst's thread starts.
const WARM_UP: usize = 3;

fn main() {
    let name = std::env::var("NNHAL_MODEL").unwrap_or("mobilenet_v2_1.0_224_int8.tflite".into());
    let frames = setting("NNHAL_FRAMES", 10_000);
    let imported = model(&name);
    let inputs: Vec<_> = imported.inputs.iter().map(|port| values::arbitrary(&port.info)).collect();
    let daemon = Daemon::start();
    let (connect, prepare) = (ServiceOptions::default(), PrepareOptions::default());
    let mut session =
        Session::with_options(&imported, &daemon.service(), &connect, &prepare).expect("a session");
    let expected = session.run(&inputs).expect("a run").0;

    let mut times = MODES.map(|_| Vec::with_capacity(frames));
    for round in 0..frames.div_ceil(TURN) {
        let turn = TURN.min(frames - round * TURN);
        for place in 0..MODES.len() {
            let way = (round + place) % MODES.len();
            let ((name, mode), times) = (MODES[way], &mut times[way]);
            session.set_mode(mode).expect("the way is open");
            for frame in 0..WARM_UP + turn {
                let (outputs, time) = session.run(&inputs).expect("a run");
                assert_eq!(outputs, expected, "{name}");
                if frame >= WARM_UP {
                    times.push(time);
                }
            }
        }
    }
    print(&name, frames, &mut times);
}

fn print(model: &str, frames: usize, times: &mut [Vec<Duration>; MODES.len()]) {
    println!("{model}, {frames} frames each way");
    println!("| way | median, ms | p99, ms | longest, ms |\n|---|---|---|---|");
    let mut all = Vec::new();
    for ((name, _), times) in MODES.iter().zip(times) {
        let figures = Figures::of(times).expect("frames");
        let Figures { median, p99, most } = figures;
        println!("| {name} | {:.3} | {:.3} | {:.3} |", ms(median), ms(p99), ms(most));
        all.push(figures);
    }
    // The last of them.
    let Some((fmq, others)) = all.split_last() else { return };
    let best = |of: fn(&Figures) -> Duration| others.iter().map(of).min().unwrap_or_default();
    let verdict = |met: bool| if met { "met" } else { "missed" };
    println!("fmq no slower than any other at the median: {}", verdict(fmq.median <= best(|f| f.median)));
    println!("fmq the best at p99: {}", verdict(fmq.p99 <= best(|f| f.p99)));
}
