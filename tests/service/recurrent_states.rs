//! A recurrent model gives the same bytes whether its states stay in the driver or go through the client's memory.

use crate::common::recurrent::Recurrence;
use crate::common::*;

#[test]
fn states_in_device_buffers_are_those_in_pools() {
    let harness = Harness::new();
    let in_pools = Recurrence::in_pools(&harness.connection, 24);
    let in_buffers = Recurrence::in_buffers(&harness.connection, 24);
    for recurrence in [&in_pools, &in_buffers] {
        recurrence.reset();
        recurrence.run(9);
    }
    let states = in_pools.states();
    assert_eq!(states, in_buffers.states());
    assert!(states.iter().flatten().any(|&byte| byte != 0));
    assert_ne!(states[0], states[2], "two steps in a row differ");
}
