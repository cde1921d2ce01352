//! Which part of the turns each of several clients has.

use super::*;

#[test]
fn who_has_short_runs_is_not_always_next() {
    let turns = Turns::new(1);
    let mut state = turns.lock();
    // The second computes, and the first comes again and again for a little more than it is ahead.
    let seats = [1, 2].map(|client| Seat::new(client, Priority::Medium));
    turns.admit(&mut state, 2, 0);
    turns.grant(&mut state, &seats[1], 0);
    let mut now = 0;
    let mut times = [0; 2];
    for _ in 0..100 {
        turns.admit(&mut state, 1, now);
        let had = |state: &State, client: u32| state[&client].had(now);
        let is_next = had(&state, 1) + SLICE_NS < had(&state, 2);
        let (computes, time) = if is_next { (0, 3 * SLICE_NS) } else { (1, SLICE_NS / 2) };
        if is_next {
            turns.end(&mut state, &seats[1], now);
            let waits = Waiting { seat: seats[1].clone(), call: Call::Wake(thread::current()) };
            turns.line_up(&mut state, waits, now, End::Front);
            turns.grant(&mut state, &seats[0], now);
        }
        now += time;
        times[computes] += time;
        if is_next {
            turns.end(&mut state, &seats[0], now);
            forget_away(&mut state, now);
            turns.leave(&mut state, &seats[1], now);
            turns.grant(&mut state, &seats[1], now);
        }
    }
    assert!(times[0] < 3 * times[1] / 2, "{times:?} ns");
    turns.end(&mut state, &seats[1], now);
    forget_away(&mut state, now);
    assert!(state.is_empty(), "what is of no use is forgotten");
}
