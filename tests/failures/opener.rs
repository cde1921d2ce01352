//! A child that is the next driver over one directory after another, until it dies of one.

use super::keeper::{self, Version};
use super::*;
use log::{LevelFilter, Log, Metadata, Record};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// How long it may take over one directory, in seconds.
const PATIENCE: u32 = 300;

/// How the child's lines begin.
const READY: &str = "ready";
const SAYS: &str = "log ";
const WELL: &str = "well ";
const WRONG: &str = "wrong ";

/// What came of a directory.
#[derive(Debug)]
pub struct Opened {
    /// How many loads found something, or what was wrong.
    pub result: Result<usize, String>,
    /// How many drivers died of it.
    pub deaths: usize,
    /// What all of them said.
    pub log: Vec<String>,
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(root: &Path) -> Self {
        let mut command = child("opener::opener_child", root);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
        let input = child.stdin.take().expect("piped");
        let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(output.by_ref().map_while(Result::ok).any(|line| line.ends_with(READY)), "no child");
        Process { child, input, output }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may be dead already
        let _ = self.child.wait();
    }
}

/// One directory, to be filled by [`State::put`](super::crashes::State::put), and the driver over it.
pub struct Opener {
    pub root: TempDir,
    process: Option<Process>,
}

impl Opener {
    pub fn new() -> Self {
        Opener { root: directory(), process: None }
    }

    /// Has drivers open the directory, one after the other if they die, and do there what [`keeper::heal`] does.
    pub fn open(&mut self, versions: &[Version]) -> Opened {
        let mut opened =
            Opened { result: Err("three drivers died of it".into()), deaths: 0, log: Vec::new() };
        let mut versions: String = versions.iter().map(|&version| char::from(version)).collect();
        while opened.deaths < 3 {
            let process = self.process.get_or_insert_with(|| Process::start(self.root.path()));
            writeln!(process.input, "{versions}").expect("it listens");
            for line in process.output.by_ref().map_while(Result::ok) {
                if let Some(hits) = line.strip_prefix(WELL) {
                    opened.result = Ok(hits.parse().expect("a number"));
                    return opened;
                }
                if let Some(why) = line.strip_prefix(WRONG) {
                    opened.result = Err(why.into());
                    return opened;
                }
                opened.log.push(line.trim_start_matches(SAYS).into());
            }
            opened.deaths += 1;
            // It may have saved that before.
            versions.push(char::from(keeper::LAST));
            self.process = None;
        }
        opened
    }
}

/// The log, as lines to the parent.
struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        println!("{SAYS}{}", record.args().to_string().replace('\n', " "));
    }

    fn flush(&self) {}
}

#[test]
#[ignore = "the child of others"]
fn opener_child() {
    let Some(root) = root_of_child() else { return };
    log::set_logger(&Logger).expect("no other logger");
    log::set_max_level(LevelFilter::Info);
    std::panic::set_hook(Box::new(|panic| {
        println!("{SAYS}{}", panic.to_string().replace('\n', " "));
        std::process::abort();
    }));
    println!("{READY}");
    for versions in std::io::stdin().lines().map_while(Result::ok) {
        nix::unistd::alarm::set(PATIENCE);
        match keeper::heal(&root, versions.as_bytes()) {
            Ok(hits) => println!("{WELL}{hits}"),
            Err(why) => println!("{WRONG}{}", why.replace('\n', " ")),
        }
    }
}
