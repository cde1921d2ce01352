//! The stages of a program: kernels to be packed, packed, and written and loaded in between.

use super::tests::{bytes_of, compile, data_of, draft, float_model, load, models, run, run_under};
use crate::backend::cpu::program::Program;
use crate::backend::{BackendError, Control};
use crate::memory::{ClientSlice, Weights};
use std::sync::Arc;

#[test]
fn results_are_the_same_bytes_at_each_stage() {
    for model in models() {
        let finished = compile(&model);
        let (expected, packed) = (run(&finished).unwrap(), finished.artifact());
        // A draft packs as it runs, and is then as good as one that was finished; so is one that was loaded.
        let compiled = draft(&model);
        let artifact = compiled.artifact();
        let loaded = load(&artifact.models[0], &data_of(&artifact)).unwrap();
        let again = loaded.artifact();
        assert_eq!((&again.models[0], bytes_of(&again)), (&artifact.models[0], bytes_of(&artifact)));
        for program in [compiled, loaded] {
            assert_eq!(program.is_finished(), program.kernels().next().is_none());
            assert_eq!(run(&program).unwrap(), expected);
            assert!(program.is_finished());
            assert_eq!(run(&program).unwrap(), expected);
            let artifact = program.artifact();
            assert_eq!((&artifact.models[0], bytes_of(&artifact)), (&packed.models[0], bytes_of(&packed)));
        }
    }
}

#[test]
fn a_draft_of_which_some_is_packed_can_be_kept_too() {
    let model = float_model();
    let (expected, program) = (run(&compile(&model)).unwrap(), draft(&model));
    // Kernels without weights are never drafts.
    let weighty = |program: &Program| -> Vec<bool> {
        let kernels = program.kernels().filter(|(kernel, _)| !kernel.packed_inputs().is_empty());
        kernels.map(|(kernel, _)| kernel.is_packed()).collect()
    };
    let mut drafts = program.kernels().filter(|(kernel, _)| !kernel.is_packed());
    drafts.nth(1).unwrap().0.pack(&Control::default()).unwrap();
    let artifact = program.artifact();
    let loaded = load(&artifact.models[0], &data_of(&artifact)).unwrap();
    assert_eq!(weighty(&loaded), [false, true, false]);
    assert_eq!(run(&loaded).unwrap(), expected);
}

#[test]
fn drafts_keep_constants_until_they_are_packed_and_no_longer() {
    let program = draft(&float_model());
    let packed: usize = {
        let finished = compile(&float_model()).artifact();
        finished.data[0].iter().map(|(_, part)| part.len()).sum()
    };
    let constants = program.artifact();
    let weak: Vec<_> = constants.data[0]
        .iter()
        .map(|(_, part)| match part {
            Weights::Private(bytes) => Arc::downgrade(bytes),
            Weights::Shared(_) => panic!("nothing was loaded"),
        })
        .collect();
    // Filters and the addend: as many bytes as the model has, not as its panels have.
    let size: usize = constants.data[0].iter().map(|(_, part)| part.len()).sum();
    assert!(size == 4 * (720 + 320 + 1800 + 1260) && size < packed, "{size} bytes");
    drop(constants);
    program.finish(&Control::default()).unwrap();
    // Only the addend, which a plain evaluation reads.
    assert_eq!(weak.iter().filter(|bytes| bytes.strong_count() > 0).count(), 1);
}

#[test]
fn first_runs_at_once_pack_once_and_agree() {
    let model = float_model();
    let (expected, program) = (run(&compile(&model)).unwrap(), draft(&model));
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..8).map(|_| scope.spawn(|| run(&program).unwrap())).collect();
        runs.into_iter().for_each(|run| assert_eq!(run.join().unwrap(), expected));
    });
    assert!(program.is_finished());
}

#[test]
fn a_first_run_keeps_its_deadline_and_leaves_a_draft() {
    let program = draft(&float_model());
    let late = Control { deadline_ns: Some(1), ..Control::default() };
    assert!(matches!(program.finish(&late), Err(BackendError::DeadlinePassed)));
    assert!(matches!(run_under(&program, &late), Err(BackendError::DeadlinePassed)));
    let cancelled = Control::default();
    cancelled.cancelled.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(program.finish(&cancelled), Err(BackendError::Cancelled)));
    let mut weighty = program.kernels().filter(|(kernel, _)| !kernel.packed_inputs().is_empty());
    assert!(weighty.all(|(kernel, _)| !kernel.is_packed()));
    assert_eq!(run(&program).unwrap(), run(&compile(&float_model())).unwrap());
}

#[test]
fn a_draft_needs_its_file_until_it_is_finished() {
    let artifact = draft(&float_model()).artifact();
    let data = data_of(&artifact);
    let (program, held) = (load(&artifact.models[0], &data).unwrap(), Arc::strong_count(&data));
    // The addend is copied at once.
    assert!(held > 3, "{held} holders");
    program.finish(&Control::default()).unwrap();
    assert_eq!(Arc::strong_count(&data), 1, "it reads nothing from the file any more");
    ClientSlice::whole(data.clone()).write(&vec![0; data.len()]).unwrap();
    assert_eq!(run(&program).unwrap(), run(&compile(&float_model())).unwrap());
}
