//! Pins the interface to the frozen one: every number and every order that two processes have to agree on is
//! written down here a second time. A change of `aidl/` that a test here refuses would break every client.

#![allow(non_snake_case)]

mod calls;
mod enums;
mod frozen;
mod parcelables;
mod points;
mod recorder;
mod wire;
