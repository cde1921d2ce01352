//! One thread that tries again every so often what failed for want of a thread: the kernel does not tell when one can be had.
//!
//! What it tries must be quick and wait for nobody.

use std::sync::mpsc::{channel, Sender};
use std::time::Duration;

/// How often it tries.
pub const RETRY: Duration = Duration::from_millis(50);

type Attempt = Box<dyn FnMut() -> bool + Send>;

/// Clones are the same. The thread ends once all of them are dropped and there is nothing left to try.
#[derive(Clone)]
pub struct Starter(Sender<Attempt>);

impl Starter {
    pub fn new() -> std::io::Result<Self> {
        let (sender, attempts) = channel::<Attempt>();
        let try_all = move || {
            while let Ok(first) = attempts.recv() {
                let mut left = vec![first];
                while !left.is_empty() {
                    std::thread::sleep(RETRY);
                    left.extend(attempts.try_iter());
                    left.retain_mut(|attempt| !attempt());
                }
            }
        };
        std::thread::Builder::new().name("nnhal-starter".into()).spawn(try_all)?;
        Ok(Starter(sender))
    }

    /// Has `attempt` called in a while, again and again until it gives `true`.
    pub fn until(&self, attempt: impl FnMut() -> bool + Send + 'static) {
        // The thread receives as long as there is a sender.
        let _ = self.0.send(Box::new(attempt));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_is_made_until_it_succeeds_though_another_never_does_and_none_is_dropped_before() {
        let starter = Starter::new().unwrap();
        let (told, heard) = channel();
        let (let_go, held) = channel::<()>();
        let tell = told.clone();
        // It succeeds once it is let go.
        starter.until(move || {
            let succeeds = held.try_recv().is_ok();
            tell.send((1, succeeds)).unwrap();
            succeeds
        });
        let mut tries = 0;
        starter.until(move || {
            tries += 1;
            told.send((2, tries == 2)).unwrap();
            tries == 2
        });
        drop(starter);
        let mut tries = heard.iter().take(100); // far more than there are
        assert!(tries.any(|tried| tried == (2, true)));
        assert_eq!(tries.next(), Some((1, false)), "nothing is tried once more that has succeeded");
        let_go.send(()).unwrap();
        assert_eq!(tries.find(|&(which, succeeds)| which == 2 || succeeds), Some((1, true)));
        assert_eq!(tries.next(), None, "both are dropped");
    }
}
