//! What holds for every subcommand of the tool: its help has examples that it takes, it has `--json`, and what is wrong
//! with a command line is said in a line.

use clap::{Command, CommandFactory, Parser};
use nnhal::tool::cli::Cli;

/// Every subcommand that does something, by its words.
fn leaves() -> Vec<(Vec<String>, Command)> {
    fn walk(command: &Command, words: Vec<String>, found: &mut Vec<(Vec<String>, Command)>) {
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let words = [&words[..], &[sub.get_name().to_string()]].concat();
            walk(sub, words, found);
        }
        if !command.has_subcommands() {
            found.push((words, command.clone()));
        }
    }
    let mut found = Vec::new();
    walk(&Cli::command(), Vec::new(), &mut found);
    found
}

/// The words of a line as a shell has them: spaces part them but in single quotes. What follows three spaces, `&&` or `|`
/// is not the tool's.
fn words(line: &str) -> Vec<String> {
    let end = ["   ", " && ", " | "].iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len());
    let mut words = Vec::new();
    for (i, part) in line[..end].split('\'').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(String::from)),
            _ => words.push(part.into()),
        }
    }
    words
}

#[test]
fn every_subcommand_has_examples_that_it_takes() {
    let leaves = leaves();
    assert!(leaves.len() >= 9, "{leaves:?}");
    for (name, mut command) in leaves {
        let help = command.render_long_help().to_string();
        let (_, examples) = help.split_once("Example").unwrap_or_else(|| panic!("{name:?} has none: {help}"));
        let lines: Vec<_> =
            examples.lines().map(str::trim).filter(|line| line.starts_with("nnhal ")).collect();
        assert!(!lines.is_empty(), "{name:?}: {examples}");
        let mut own = 0;
        for line in lines {
            let words = words(line);
            if let Err(why) = Cli::try_parse_from(&words) {
                panic!("{line}: {why}");
            }
            own += usize::from(words.windows(name.len()).any(|part| part == name));
        }
        assert!(own > 0, "{name:?} is in none of its examples: {examples}");
    }
}

#[test]
fn every_subcommand_has_json() {
    for (name, command) in leaves() {
        let flag = command.get_arguments().find(|argument| argument.get_long() == Some("json"));
        assert!(flag.is_some(), "{name:?} is without --json");
    }
}

#[test]
fn what_is_wrong_is_said_in_a_line_with_what_to_do() {
    for (arguments, told) in [
        (&["bench", "/nowhere/m.tflite"][..], "give the path of a .tflite file"),
        (&["inspect", "/nowhere/m.tflite"], "give the path of a .tflite file"),
        (&["run", "/nowhere/m.tflite"], "give the path of a .tflite file"),
        (&["run", "/"], "/: it is no regular file; give the path of a .tflite file"),
        (&["bench", "m", "--seconds", "-1"], "expected a number of seconds above 0"),
        (&["run"], "for more information, try '--help'"),
        (&["corpus", "--fom", "x"], "a similar argument exists: '--from'"),
        (&["cache", "list", "--data", "/nowhere"], "no driver has kept anything in /nowhere"),
        (&["--service", "unix:/nowhere/socket", "info"], "start a driver there with `nnhald --service"),
        (&["conformance", "/nowhere"], "/nowhere"),
    ] {
        let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_nnhal"));
        let output = tool.args(arguments).env_remove("RUST_LOG").output().expect("it starts");
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.starts_with("nnhal: ") && error.contains(told), "{arguments:?}: {error}");
        assert_eq!((error.lines().count(), output.stdout.len()), (1, 0), "{arguments:?}: {error}");
    }
}

#[test]
fn an_error_that_nobody_can_read_has_its_exit_code() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
    let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_nnhal"));
    let status = tool.args(["run", "/nowhere/m.tflite"]).stderr(full).status().expect("it starts");
    assert_eq!(status.code(), Some(2));
}
