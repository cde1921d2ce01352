//! Circles of files: which files of a room name which, and whether one can come back to where it started.
//!
//! What a file names counts where it is defined, not where it is passed on: a `pub use` in a table of contents joins
//! nothing. What is compiled for tests only does not count: tests may look around.

use super::module_of;
use super::paths::tree;
use super::tokens::{tokens, Token};
use std::collections::{BTreeMap, BTreeSet};

type Module = Vec<String>;

/// A file of `src/`.
struct File {
    name: String,
    tokens: Vec<Token>,
    /// What its `use` declarations call what: a name, and a path from the crate's root.
    uses: Vec<Use>,
    /// The tokens that are in `use` declarations.
    in_use: Vec<bool>,
}

struct Use {
    name: String,
    path: Module,
    is_public: bool,
}

/// All of `src/`, given as names and texts: each circle as the files on it, `a -> b -> a`.
pub fn find(sources: &[(String, String)]) -> Vec<String> {
    let files: BTreeMap<Module, File> = sources
        .iter()
        .filter(|(name, _)| name != "lib.rs" && !name.starts_with("bin/"))
        .map(|(name, text)| (module_of(name), read(name, text)))
        .collect();
    let edges: BTreeMap<&Module, BTreeSet<&Module>> =
        files.iter().map(|(module, file)| (module, named(module, file, &files))).collect();
    let mut circles = Vec::new();
    let mut on_one = BTreeSet::new();
    for start in files.keys() {
        let Some(circle) = shortest(start, &edges) else { continue };
        // One for each set of files that are entangled is enough: those that follow may be gone with it.
        if circle.iter().all(|module| !on_one.contains(module)) {
            let names: Vec<&str> = circle.iter().map(|module| files[*module].name.as_str()).collect();
            circles.push(names.join(" -> "));
        }
        on_one.extend(circle);
    }
    circles
}

/// The shortest way from a file back to itself.
fn shortest<'f>(
    start: &'f Module,
    edges: &BTreeMap<&'f Module, BTreeSet<&'f Module>>,
) -> Option<Vec<&'f Module>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for &next in way.last().and_then(|here| edges.get(here)).into_iter().flatten() {
                let longer_way = [&way[..], &[next]].concat();
                if next == start {
                    return Some(longer_way);
                }
                if seen.insert(next) {
                    longer.push(longer_way);
                }
            }
        }
        ways = longer;
    }
    None
}

fn read(name: &str, text: &str) -> File {
    let tokens = without_tests(tokens(text));
    let module = module_of(name);
    let (mut uses, mut in_use) = (Vec::new(), vec![false; tokens.len()]);
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let mut i = 0;
    while i < tokens.len() {
        if text(i) != "use" {
            i += 1;
            continue;
        }
        let end = (i..tokens.len()).find(|&end| text(end) == ";").unwrap_or(tokens.len());
        in_use[i..end].fill(true);
        let is_public = i > 0 && matches!(text(i - 1), "pub" | ")");
        let mut found = Vec::new();
        tree(&tokens[..end], &mut (i + 1), &[], &mut found);
        for named in found {
            let Some(path) = absolute(&named.segments, &module) else { continue };
            let alias = (i..end).find(|&at| {
                text(at) == "as" && Some(text(at - 1)) == named.segments.last().map(String::as_str)
            });
            let name = alias.map_or(path.last().cloned(), |at| Some(text(at + 1).to_string()));
            uses.push(Use { name: name.unwrap_or_default(), path, is_public });
        }
        i = end;
    }
    File { name: name.to_string(), tokens, uses, in_use }
}

/// The tokens, without modules and items that `#[cfg(test)]` or `#[cfg(all(test...` stands before.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut i = 0;
    let at = |i: usize| tokens.get(i).map_or("", |t: &Token| t.text.as_str());
    while i < tokens.len() {
        let is_test = at(i) == "#" && at(i + 1) == "[" && at(i + 2) == "cfg" && {
            let end = (i..tokens.len()).find(|&e| at(e) == "]").unwrap_or(i);
            (i..end).any(|t| at(t) == "test") && !(i..end).any(|t| at(t) == "not")
        };
        if !is_test {
            kept.push(i);
            i += 1;
            continue;
        }
        // To the end of the item: a semicolon, or the brace that closes it.
        let mut depth = 0;
        loop {
            match at(i) {
                "" => break,
                "{" => depth += 1,
                "}" if depth == 1 => break,
                "}" => depth -= 1,
                ";" if depth == 0 => break,
                _ => {}
            }
            i += 1;
        }
        i += 1;
    }
    let mut keep = kept.into_iter().peekable();
    tokens.into_iter().enumerate().filter(|(i, _)| keep.next_if_eq(i).is_some()).map(|(_, t)| t).collect()
}

/// A path from the crate's root, `module` being where it is written; `None` for one that starts elsewhere.
fn absolute(segments: &[String], module: &Module) -> Option<Module> {
    let supers = segments.iter().take_while(|s| *s == "super").count();
    match segments.first().map(String::as_str) {
        Some("crate") => Some(segments[1..].to_vec()),
        Some("super") => {
            let base = module.get(..module.len().checked_sub(supers)?)?;
            Some([base, &segments[supers..]].concat())
        }
        // A child, or another crate, which is no module of this one.
        Some(_) => Some([module, segments].concat()),
        None => Some(module.clone()), // `self`
    }
}

/// The other files of its room that a file names.
fn named<'f>(module: &Module, file: &File, files: &'f BTreeMap<Module, File>) -> BTreeSet<&'f Module> {
    let mut found = BTreeSet::new();
    let mut meet = |path: &[String]| {
        if let Some(there) = defined_in(path, files, 0).filter(|there| *there != module) {
            if there.first() == module.first() {
                found.insert(there);
            }
        }
    };
    let text = |i: usize| file.tokens.get(i).map_or("", |t| t.text.as_str());
    for used in &file.uses {
        let is_named = || (0..file.tokens.len()).any(|i| !file.in_use[i] && text(i) == used.name);
        // A module counts by what is taken from it, below.
        if !files.contains_key(&used.path) && (!used.is_public || is_named()) {
            meet(&used.path);
        }
    }
    for i in 0..file.tokens.len() {
        if file.in_use[i] || text(i + 1) != "::" || (i > 0 && text(i - 1) == "::") {
            continue;
        }
        let mut paths = Vec::new();
        tree(&file.tokens, &mut i.clone(), &[], &mut paths);
        for path in paths {
            let imported = file.uses.iter().find(|used| Some(&used.name) == path.segments.first());
            let path = match imported {
                Some(used) => Some([&used.path, &path.segments[1..]].concat()),
                None => absolute(&path.segments, module),
            };
            meet(&path.unwrap_or_default());
        }
    }
    found
}

/// The file that defines what `path` names, through whatever passes it on.
fn defined_in<'f>(path: &[String], files: &'f BTreeMap<Module, File>, depth: usize) -> Option<&'f Module> {
    let of_file = (0..=path.len()).rev().find(|&len| files.contains_key(&path[..len]))?;
    let (module, rest) = path.split_at(of_file);
    let (module, file) = files.get_key_value(module)?;
    // Nothing more: a module, by its name alone.
    let name = rest.first()?;
    match file.uses.iter().find(|used| used.name == *name && used.path != path) {
        Some(used) if depth < 10 => {
            defined_in(&[&used.path, &rest[1..]].concat(), files, depth + 1).or(Some(module))
        }
        _ => Some(module),
    }
}

fn circles(files: &[(&str, &str)]) -> Vec<String> {
    find(&files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect::<Vec<_>>())
}

#[test]
fn files_that_name_each_other_are_a_circle() {
    let two = [("a/x.rs", "use super::y::Y; struct X;"), ("a/y.rs", "use crate::a::x::X; struct Y;")];
    assert_eq!(circles(&two), ["a/x.rs -> a/y.rs -> a/x.rs"]);
    let three = [
        ("a/x.rs", "use super::y; fn f() { y::g() }"),
        ("a/y.rs", "fn g() { super::z::h() }"),
        ("a/z.rs", "use super::{x as other}; fn h() { other::f() }"),
    ];
    assert_eq!(circles(&three), ["a/x.rs -> a/y.rs -> a/z.rs -> a/x.rs"]);
    assert_eq!(circles(&two[..1]), [""; 0]);
}

#[test]
fn a_parent_and_its_child_can_be_a_circle() {
    let child = ("a/x.rs", "use super::Shared; pub fn f(_: Shared) {}");
    let parent = ("a/mod.rs", "mod x; pub struct Shared; fn g() { x::f(Shared) }");
    assert_eq!(circles(&[parent, child]), ["a/mod.rs -> a/x.rs -> a/mod.rs"]);
    let imported = ("a/mod.rs", "mod x; use x::f; pub struct Shared;");
    assert_eq!(circles(&[imported, child]).len(), 1);
}

#[test]
fn a_table_of_contents_joins_nothing() {
    let contents = ("a/mod.rs", "mod x; mod y; pub use x::X; pub use y::Y;");
    let x = ("a/x.rs", "pub struct X;");
    assert_eq!(circles(&[contents, x, ("a/y.rs", "use super::X; pub struct Y(X);")]), [""; 0]);
    // What it passes on counts where it is defined.
    let round = [contents, ("a/x.rs", "use super::Y; struct X(Y);"), ("a/y.rs", "use super::X;")];
    assert_eq!(circles(&round), ["a/x.rs -> a/y.rs -> a/x.rs"]);
    // One that also uses what it passes on is more than a table.
    let user = ("a/mod.rs", "mod x; pub use x::X; pub struct Z; fn f(_: X) {}");
    assert_eq!(circles(&[user, ("a/x.rs", "use super::Z; pub struct X(Z);")]).len(), 1);
}

#[test]
fn tests_and_other_rooms_do_not_count() {
    let x = ("a/x.rs", "use super::y::Y; #[cfg(test)] mod tests { use super::*; } struct X;");
    let y = ("a/y.rs", "struct Y; #[cfg(test)] mod tests { fn f() { super::super::x::X } } fn g() {}");
    assert_eq!(circles(&[x, y]), [""; 0]);
    assert_eq!(circles(&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")]), [""; 0]);
}
