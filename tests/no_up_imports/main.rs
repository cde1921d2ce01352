//! The house rules that the compiler does not check, over the text of `src/`: imports go down the floors, files stay
//! small, `unsafe` stays where it belongs, every module says what it is for.
//!
//! Files of one room form no circle either, tests aside.

mod circles;
mod paths;
mod tokens;

use paths::named_paths;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use tokens::tokens;

/// Modules and their floors; a higher floor may name a lower one and itself, nothing else.
const FLOORS: &[(&str, u8)] = &[
    ("tool", 10),
    ("daemon", 9),
    ("tflite", 9),
    ("client", 8),
    ("service", 8),
    ("compiler", 7),
    ("isolation", 7),
    ("testing", 7),
    ("cache", 6),
    ("buffer", 6),
    ("backend", 6),
    ("fmq", 6),
    ("model", 5),
    ("scheduler", 4),
    ("ops", 3),
    ("tensor", 2),
    ("memory", 1),
    ("ipc", 0),
    ("points", 0),
    ("quota", 0),
    ("statistics", 0),
    ("sync", 0),
    ("waits", 0),
];

/// The generated stubs stand beside the floors: whoever talks to clients may name their types.
const AIDL: &str = "aidl";
const MAY_NAME_AIDL: &[&str] = &[
    "daemon", "service", "client", "tflite", "tool", "compiler", "testing", "fmq", "cache", "buffer", "ipc",
    "model", "memory",
];

/// What the stubs may name: what code that is generated passes through.
const OF_AIDL: &[&str] = &["points"];

/// The modules that may not be named although they are on a lower floor: who, and what.
const FORBIDDEN: &[(&str, &str)] = &[
    // The tool starts a daemon in a thread of its own, and from there on talks to it over binder.
    ("tool", "service"),
];

const MAY_BE_UNSAFE: &[&str] = &["memory", "fmq", "backend/cpu/kernels", "backend/cpu/pool"];

const MOST_LINES: usize = 500;

#[test]
fn the_house_rules_hold_in_src() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    assert!(files.contains(&src.join("lib.rs")), "{} holds no library", src.display());
    files.sort();
    let sources: Vec<(String, String)> = files
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let name = file.strip_prefix(&src).unwrap_or(file).to_string_lossy().replace('\\', "/");
            (name, text)
        })
        .collect();
    let mut faults: Vec<String> = sources.iter().flat_map(|(name, text)| check(name, text)).collect();
    let circles = circles::find(&sources).into_iter();
    faults.extend(circles.map(|circle| format!("{circle}: these files form a circle")));
    let mut list = String::new();
    for fault in &faults {
        let _ = writeln!(list, "src/{fault}");
    }
    assert!(faults.is_empty(), "{} faults against the house rules:\n{list}", faults.len());
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.unwrap_or_else(|e| panic!("{}: {e}", dir.display())).path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Every fault of one file, `name` being its path under `src/`, as `FILE:LINE: what is wrong`.
fn check(name: &str, text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let module = module_of(name);
    let mut faults = Vec::new();
    let mut fault = |line: usize, what: String| faults.push(format!("{name}:{line}: {what}"));

    let lines = text.lines().count();
    if lines > MOST_LINES {
        fault(MOST_LINES + 1, format!("{lines} lines, {MOST_LINES} at most: split the file"));
    }
    let code = text.lines().map(str::trim_start).find(|l| {
        let plain_comment = l.starts_with("//") && !l.starts_with("//!");
        !l.is_empty() && !plain_comment
    });
    if !code.is_some_and(|l| l.starts_with("//!")) {
        fault(1, "no `//!` at the top: say what the module is for".into());
    }
    let path = module.join("/");
    if !MAY_BE_UNSAFE.iter().any(|p| path == *p || path.starts_with(&format!("{p}/"))) {
        for token in tokens.iter().filter(|t| t.text == "unsafe") {
            fault(token.line, format!("`unsafe` is for {} only", MAY_BE_UNSAFE.join(", ")));
        }
    }
    // The crate root names every module; a binary is a crate of its own, above them all.
    if let Some(from) = module.first().filter(|m| *m != "bin") {
        for named in named_paths(&tokens, &module) {
            if let Err(why) = judge(from, &named.segments) {
                fault(named.line, format!("`crate::{}`: {why}", named.segments.join("::")));
            }
        }
    }
    faults
}

/// Whether module `from` may name the crate path `to`, or why not.
fn judge(from: &str, to: &[String]) -> Result<(), String> {
    let floor = |module: &str| FLOORS.iter().find(|(m, _)| *m == module).map(|(_, floor)| *floor);
    let Some(target) = to.first().map(String::as_str) else { return Ok(()) };
    if from == target {
        return Ok(());
    }
    if target == AIDL {
        return match MAY_NAME_AIDL.contains(&from) {
            true => Ok(()),
            false => Err(format!("`{from}` does not talk to clients and may not name `{AIDL}`")),
        };
    }
    if from == AIDL && OF_AIDL.contains(&target) {
        return Ok(());
    }
    if FORBIDDEN.contains(&(from, target)) {
        return Err(format!("`{from}` may not name `{target}`, although it is on a lower floor"));
    }
    match (floor(from), floor(target)) {
        (Some(here), Some(there)) if there < here => Ok(()),
        (Some(here), Some(there)) if there == here => {
            Err(format!("`{from}` and `{target}` share floor {here} and may not name each other"))
        }
        (Some(here), Some(there)) => {
            Err(format!("an import goes down, never up: `{from}` is on floor {here}, `{target}` on {there}"))
        }
        (None, _) => Err(format!("`{from}` stands on no floor and may name no other module")),
        (_, None) => Err(format!("`{target}` is a module on no floor")),
    }
}

/// `ops/conv/mod.rs` is `[ops, conv]`, and so is `ops/conv.rs`; the crate's root is empty.
fn module_of(name: &str) -> Vec<String> {
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    match stem {
        "lib" => Vec::new(),
        _ => stem.split('/').map(String::from).collect(),
    }
}

/// The faults of a snippet that starts with its `//!` line, without the file's name.
fn faults(name: &str, code: &str) -> Vec<String> {
    let all = check(name, &format!("//! A module.\n{code}"));
    all.into_iter().map(|f| f.strip_prefix(name).unwrap_or(&f).to_string()).collect()
}

#[test]
fn down_is_allowed_and_up_is_not() {
    assert_eq!(faults("model/mod.rs", "use crate::ops::Table;\nuse crate::model::x;"), [""; 0]);
    let up = faults("ops/conv.rs", "\nuse crate::model::Model;");
    assert_eq!(up.len(), 1);
    assert!(up[0].starts_with(":3: `crate::model::Model`: an import goes down"), "{}", up[0]);
    assert_eq!(faults("cache/mod.rs", "use crate::backend::Backend;").len(), 1);
    assert_eq!(faults("cache.rs", "fn f() { crate::nowhere::g() }").len(), 1);
    assert_eq!(faults("lib.rs", "pub use crate::service::Device;"), [""; 0]);
}

#[test]
fn groups_are_read_member_by_member() {
    let code = "use crate::{tensor::{self, Shape}, ops,\n  service::{device::{A, B}, C}, memory as m, *};";
    let found = faults("model/request.rs", code);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[0].starts_with(":3: `crate::service::device::A`"), "{}", found[0]);
    assert!(found[3].contains("`crate::*`"), "{}", found[3]);
    assert_eq!(faults("memory/a.rs", "use crate::{memory::{x}, tensor}; use crate::ops;").len(), 2);
}

#[test]
fn climbing_with_super_is_no_way_round() {
    assert_eq!(faults("ops/conv.rs", "use super::super::model::Model;").len(), 1);
    assert_eq!(faults("ops/conv.rs", "use super::Signature; mod t { use super::super::Table; }"), [""; 0]);
    assert_eq!(faults("ops/mod.rs", "mod tests { fn f() {} use super::{super::model, T}; }"), [""; 0]);
    assert_eq!(
        faults("ops/mod.rs", "mod tests { use super::super::model::{A}; }\nuse super::tool;").len(),
        2
    );
    assert_eq!(faults("ops/mod.rs", "use crate as c;").len(), 1);
}

#[test]
fn the_stubs_and_the_embedded_daemon_have_rules_of_their_own() {
    assert_eq!(faults("memory/pool.rs", "use crate::aidl::Memory;"), [""; 0]);
    assert_eq!(faults("backend/cpu/mod.rs", "use crate::aidl::Memory;").len(), 1);
    assert_eq!(faults("aidl.rs", "use crate::tensor::Shape;").len(), 1);
    assert_eq!(faults("aidl.rs", "crate::points::passed();"), [""; 0]);
    assert_eq!(faults("tool/run.rs", "crate::daemon::embedded::start();"), [""; 0]);
    assert_eq!(faults("tool/run.rs", "use crate::service::device;").len(), 1);
    assert_eq!(faults("service/mod.rs", "use crate::tool::run;").len(), 1);
}

#[test]
fn comments_and_literals_are_not_code() {
    let code = r##"
        // crate::model /* unsafe
        /* crate::model /* nested */ unsafe */
        const A: &str = "crate::model \" unsafe"; const B: &str = r#"unsafe " crate::model"#;
        const C: char = '"'; const D: char = '\''; const E: u8 = b'"'; fn f<'a>(x: &'a str) {}
    "##;
    assert_eq!(faults("tensor/mod.rs", code), [""; 0]);
    assert_eq!(faults("tensor/mod.rs", &format!("{code}\nuse crate::model;")).len(), 1);
}

#[test]
fn unsafe_size_and_purpose_are_checked() {
    assert_eq!(faults("ops/conv.rs", "fn f() { unsafe { g() } }").len(), 1);
    assert_eq!(faults("backend/cpu/poolside.rs", "unsafe fn f() {}").len(), 1);
    for name in ["memory/a.rs", "backend/cpu/pool.rs", "backend/cpu/pool/a.rs", "backend/cpu/kernels/a/b.rs"]
    {
        assert_eq!(faults(name, "unsafe fn f() {}"), [""; 0], "{name}");
    }
    assert_eq!(faults("ops/mod.rs", &"\n".repeat(MOST_LINES - 1)), [""; 0]);
    assert_eq!(faults("ops/mod.rs", &"\n".repeat(MOST_LINES)).len(), 1);
    assert_eq!(check("ops/mod.rs", "// A licence.\n\n//! Operations.\n"), [""; 0]);
    assert_eq!(check("ops/mod.rs", "use std::fmt;\n//! Too late.\n").len(), 1);
}
