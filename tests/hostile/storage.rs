//! Clients that have the driver save and load without end, in files that they damage, and on a disk that they fill; and an
//! innocent one whose files lie on the same disk.

use crate::attackers::on_threads;
use crate::common::caching::*;
use crate::common::{bytes_of, floats, request, Connection};
use crate::daemon::files_beside;
use crate::disk;
use binder::Strong;
use nnhal::aidl::{ErrorStatus, IPreparedModel};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// A layer of so many inputs and outputs has 256 KiB of weights: the driver keeps as much in its store.
const SIZE: i32 = 256;

/// A file on the disk of clients, gone with the one that has it: a client that is killed leaves the disk no fuller.
fn file(socket: &Path) -> File {
    tempfile::tempfile_in(files_beside(socket)).expect("a file")
}

/// Saves under every token, and loads.
pub fn saves_and_loads(socket: &Path) {
    let connection = Connection::new(socket);
    let (model, last) = (layer_of(SIZE), AtomicU8::new(0));
    on_threads(4, || {
        let cache = Cache::new(last.fetch_add(1, Ordering::Relaxed));
        let files = (&[&cache.model][..], &[&cache.data][..]);
        drop(try_save_in(&connection.device, &model, files.0, files.1, &cache.token));
        for _ in 0..2 {
            drop(load(&connection.device, &cache));
        }
    });
}

/// Saves, and damages files while they are loaded and computed with.
pub fn damages_files(socket: &Path) {
    let connection = Connection::new(socket);
    let cache = Cache::new(1);
    let (model, turn) = (layer_of(SIZE), AtomicUsize::new(0));
    let damage = || {
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        for file in [&cache.model, &cache.data] {
            let length = file.metadata().expect("a length").len().max(1);
            let at = turn as u64 * 4099 % length;
            // Not under all conditions: what it does is damage in any case.
            let _ = match turn % 16 {
                0 => file.set_len(at),
                1 => file.set_len(length + at),
                _ => file.write_all_at(&[turn as u8], at),
            };
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(|| loop {
            damage();
            std::thread::sleep(std::time::Duration::from_micros(300));
        });
        loop {
            let (_, saved) =
                try_save_in(&connection.device, &model, &[&cache.model], &[&cache.data], &cache.token);
            for _ in 0..8 {
                let (_, loaded) = load(&connection.device, &cache);
                for model in [&saved, &loaded].into_iter().flatten() {
                    let _ = execute(model, &[1.0; SIZE as usize]);
                }
            }
        }
    });
}

/// Fills the disk, saves on it, and makes place again.
pub fn fills_the_disk(socket: &Path) {
    let connection = Connection::new(socket);
    let mut filler = file(socket);
    let cache = Cache { model: file(socket), data: file(socket), token: [1; 32] };
    let model = layer_of(SIZE);
    loop {
        let mut written = 0;
        while written < disk::SIZE && filler.write_all(&[1; 64 << 10]).is_ok() {
            written += 64 << 10;
        }
        for _ in 0..4 {
            drop(try_save_in(&connection.device, &model, &[&cache.model], &[&cache.data], &cache.token));
            drop(load(&connection.device, &cache));
        }
        filler = file(socket);
    }
}

/// A client that saves a model on the disk, and loads it.
pub struct CachingClient {
    cache: Cache,
    turns: usize,
    pub counts: Counts,
}

/// How often it did, and what came of it.
#[derive(Debug, Default)]
pub struct Counts {
    pub saved: usize,
    pub loaded: usize,
    pub missed: usize,
    pub wrong: usize,
    /// How often which call was refused, and how.
    pub refused: BTreeMap<String, usize>,
}

impl CachingClient {
    pub fn new(socket: &Path) -> Self {
        let (model, data) = (file(socket), file(socket));
        CachingClient { cache: Cache { model, data, token: [7; 32] }, turns: 0, counts: Counts::default() }
    }

    /// Saves at times, loads otherwise, and saves what cannot be loaded; and executes.
    pub fn work(&mut self, connection: &Connection) {
        let loaded = match self.turns.is_multiple_of(8) {
            true => None,
            false => self.load(connection),
        };
        self.turns += 1;
        let Some(model) = loaded.or_else(|| self.save(connection)) else { return };
        let bytes = 4 * SIZE as usize;
        let (request, output) = request(&floats(&[1.0; SIZE as usize]), bytes);
        match model.executeSynchronously(&request, false, -1, -1) {
            Ok(_) => {
                self.counts.wrong += usize::from(bytes_of(&output) != floats(&layer_output(SIZE as usize)));
            }
            Err(why) => self.refused("execution", why),
        }
    }

    fn load(&mut self, connection: &Connection) -> Option<Strong<dyn IPreparedModel>> {
        let (status, model) = load(&connection.device, &self.cache);
        match status {
            ErrorStatus::NONE => self.counts.loaded += 1,
            ErrorStatus::GENERAL_FAILURE => self.counts.missed += 1,
            other => self.refused("load", format!("{other:?}")),
        }
        model
    }

    /// The model is prepared, even where the files could not be written.
    fn save(&mut self, connection: &Connection) -> Option<Strong<dyn IPreparedModel>> {
        self.counts.saved += 1;
        let (model, data) = (&[&self.cache.model], &[&self.cache.data]);
        let (status, model) =
            try_save_in(&connection.device, &layer_of(SIZE), model, data, &self.cache.token);
        if status != ErrorStatus::NONE {
            self.refused("save", format!("{status:?}"));
        }
        model
    }

    fn refused(&mut self, what: &str, why: impl Display) {
        *self.counts.refused.entry(format!("{what}: {why}")).or_default() += 1;
    }
}
