//! Cache files that are not what was saved, or not under that name.

use super::bench::{one_of, Bench};
use super::case::Case;
use super::models::*;
use crate::aidl::*;
use crate::client::{CacheFiles, ClientError, PrepareOptions, PreparedModel};
use crate::tool::conformance::outcome::{fail, Skip, Step, Stop};
use std::fs::File;
use std::os::unix::fs::FileExt;

pub const CASES: &[Case] = &[
    Case {
        name: "cache_foreign_token",
        sent: "prepareModelFromCache with the files of one compilation and the token of another, or of none",
        rule: "GENERAL_FAILURE or INVALID_ARGUMENT: a model cache belongs to its token",
        run: foreign_token,
    },
    Case {
        name: "cache_swapped",
        sent: "the model cache files of two compilations swapped",
        rule: "GENERAL_FAILURE or INVALID_ARGUMENT: a driver must find out that its model cache was replaced",
        run: swapped,
    },
    Case {
        name: "cache_stale",
        sent: "model cache files of an earlier compilation under the same token, put back after a later one",
        rule: "an error, or the later model: what is loaded under a token is what was last saved under it",
        run: stale,
    },
    Case {
        name: "cache_torn",
        sent: "model cache files cut off, made longer, emptied, zeroed in part, with one bit flipped",
        rule: "GENERAL_FAILURE or INVALID_ARGUMENT: a driver must find out that its model cache was changed",
        run: torn,
    },
    Case {
        name: "cache_data_changed",
        sent: "data cache files with every byte inverted, or cut off",
        rule: "an error, or a model whose values may be wrong: changed data must not end the process",
        run: data_changed,
    },
];

const REFUSALS: &[ErrorStatus] = &[ErrorStatus::GENERAL_FAILURE, ErrorStatus::INVALID_ARGUMENT];

/// What is compiled: the operation, its constant, and the result of 1.
type Compiled = (OperationType, f32, f32);
const FIRST: Compiled = (OperationType::ADD, 1.0, 2.0);
const SECOND: Compiled = (OperationType::MUL, 3.0, 3.0);

/// A compilation's files.
struct Saved {
    models: Vec<File>,
    data: Vec<File>,
    token: [u8; 32],
}

impl Saved {
    fn files(&self) -> Step<CacheFiles> {
        let descriptors = |files: &[File]| files.iter().map(descriptor).collect::<std::io::Result<Vec<_>>>();
        let (model, data) = (descriptors(&self.models)?, descriptors(&self.data)?);
        Ok(CacheFiles { model, data, token: self.token })
    }
}

/// Compiles and has it saved under a token that no run before has used.
fn save(bench: &Bench, compiled: Compiled, number: u8) -> Step<Saved> {
    let (models, data) = bench.cache_files()?;
    let files = |count| (0..count).map(|_| unsealed(&[])).collect::<std::io::Result<Vec<_>>>();
    let mut token = [number; 32];
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    token[..16].copy_from_slice(&now.as_nanos().to_le_bytes());
    token[16..20].copy_from_slice(&std::process::id().to_le_bytes());
    let saved = Saved { models: files(models)?, data: files(data)?, token };
    save_again(bench, compiled, &saved)?;
    Ok(saved)
}

fn save_again(bench: &Bench, compiled: Compiled, saved: &Saved) -> Step {
    let model = with_constant(compiled.0, compiled.1);
    let prepared = bench.driver.prepare_into(&model, &saved.files()?, &PrepareOptions::default())?;
    check(bench, &prepared, compiled)?;
    match contents(&saved.models)?.iter().all(Vec::is_empty) && !saved.models.is_empty() {
        true => Err(Stop::Skip(Skip::Inapplicable("the driver saved nothing"))),
        false => Ok(()),
    }
}

fn contents(files: &[File]) -> Step<Vec<Vec<u8>>> {
    let read = |file: &File| {
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    Ok(files.iter().map(read).collect::<std::io::Result<_>>()?)
}

fn write(files: &[File], contents: &[Vec<u8>]) -> Step {
    for (file, bytes) in files.iter().zip(contents) {
        file.set_len(0)?;
        file.write_all_at(bytes, 0)?;
    }
    Ok(())
}

/// Whether this is what was compiled.
fn check(bench: &Bench, prepared: &PreparedModel, (_, _, result): Compiled) -> Step {
    let (request, room) = request(&floats(&[1.0]), 4)?;
    one_of("an execution", bench.execute(prepared, &request)?, &[ErrorStatus::NONE])?;
    match output(&room, 4)? == floats(&[result]) {
        true => Ok(()),
        false => fail("the result is that of another model"),
    }
}

/// Loads; `None` where the driver refused, as it may.
fn load(bench: &Bench, saved: &Saved) -> Step<Option<PreparedModel>> {
    match bench.driver.prepare_from(&saved.files()?) {
        Ok(prepared) => Ok(Some(prepared)),
        Err(ClientError::Refused { status, .. }) => {
            one_of("prepareModelFromCache", status, REFUSALS)?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn must_refuse(bench: &Bench, saved: &Saved, what: &str) -> Step {
    match load(bench, saved)? {
        None => Ok(()),
        Some(_) => fail(format!("{what} were loaded")),
    }
}

fn foreign_token(bench: &Bench) -> Step {
    let (mut first, second) = (save(bench, FIRST, 1)?, save(bench, SECOND, 2)?);
    let own = first.token;
    first.token = second.token;
    must_refuse(bench, &first, "files under another compilation's token")?;
    first.token = own;
    first.token[31] ^= 1;
    must_refuse(bench, &first, "files under a token of nothing")
}

fn swapped(bench: &Bench) -> Step {
    let (first, second) = (save(bench, FIRST, 3)?, save(bench, SECOND, 4)?);
    let (ours, theirs) = (contents(&first.models)?, contents(&second.models)?);
    write(&first.models, &theirs)?;
    write(&second.models, &ours)?;
    must_refuse(bench, &first, "another compilation's files")?;
    must_refuse(bench, &second, "another compilation's files")
}

fn stale(bench: &Bench) -> Step {
    let saved = save(bench, FIRST, 5)?;
    let earlier = contents(&saved.models)?;
    save_again(bench, SECOND, &saved)?;
    if contents(&saved.models)? == earlier {
        return Err(Stop::Skip(Skip::Inapplicable("the driver keeps all that differs in data files")));
    }
    write(&saved.models, &earlier)?;
    match load(bench, &saved)? {
        Some(prepared) => check(bench, &prepared, SECOND),
        None => Ok(()),
    }
}

fn torn(bench: &Bench) -> Step {
    let saved = save(bench, FIRST, 6)?;
    let whole = contents(&saved.models)?;
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 6] = [
        ("files cut in half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("files without their last byte", |bytes| bytes.truncate(bytes.len().saturating_sub(1))),
        ("empty files", Vec::clear),
        ("longer files", |bytes| bytes.extend([0; 100])),
        ("files with a zeroed half", |bytes| {
            let half = bytes.len() / 2;
            bytes[half..].fill(0);
            bytes.extend([1]);
        }),
        ("files with one bit flipped", |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }),
    ];
    for (what, change) in changes {
        let mut changed = whole.clone();
        changed.iter_mut().filter(|bytes| !bytes.is_empty()).for_each(change);
        write(&saved.models, &changed)?;
        must_refuse(bench, &saved, what)?;
    }
    Ok(())
}

fn data_changed(bench: &Bench) -> Step {
    let saved = save(bench, FIRST, 7)?;
    let whole = contents(&saved.data)?;
    let inverted = |bytes: &Vec<u8>| bytes.iter().map(|byte| !byte).collect();
    let halved = |bytes: &Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    for changed in [whole.iter().map(inverted).collect::<Vec<_>>(), whole.iter().map(halved).collect()] {
        write(&saved.data, &changed)?;
        if let Some(prepared) = load(bench, &saved)? {
            let (request, _room) = request(&floats(&[1.0]), 4)?;
            bench.execute(&prepared, &request)?;
        }
    }
    Ok(())
}
