//! The service as its clients meet it, over binder: each module tries one side of it.
//!
//! One program, as to link one takes longer than to run most of these. What counts what a whole process holds, or changes
//! it for good, is a program of its own.

#[path = "../common/mod.rs"]
mod common;

mod basic;
mod cache;
#[cfg(feature = "tool")]
mod cache_models;
mod cache_storm;
mod changing_memory;
#[cfg(feature = "tool")]
mod diagnostics;
mod dma_bufs;
#[cfg(feature = "tool")]
mod dumps;
mod execute;
mod fences;
mod fmq_burst;
mod hang_ups;
mod hardware_buffers;
mod hostile;
mod in_place;
mod just_in_time;
mod kept_data;
mod memory_domains;
mod memory_limits;
#[cfg(feature = "tool")]
mod ops_corpus;
mod paths;
#[cfg(feature = "tool")]
mod permits;
#[cfg(feature = "tool")]
mod profile;
mod recurrent_states;
mod requests;
mod rpc_smoke;
mod sync_files;
mod vanishing_memory;
