//! A report as a tree, and the tree as JSON or as text.

use std::fmt::Write;

/// A value of a report. Names are the report's own; texts may hold anything.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// What is not known.
    Unknown,
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<Value>),
    /// In the order in which people read them.
    Fields(Vec<(String, Value)>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Value::Number(number as u64)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::Number(number.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Unknown, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(list: I) -> Self {
        Value::List(list.into_iter().map(Into::into).collect())
    }
}

impl Value {
    pub fn fields<N: Into<String>>(fields: impl IntoIterator<Item = (N, Value)>) -> Self {
        Value::Fields(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        let mut text = String::new();
        self.write_json(&mut text);
        text
    }

    fn write_json(&self, text: &mut String) {
        match self {
            Value::Unknown => text.push_str("null"),
            Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Value::Number(number) => text.push_str(&number.to_string()),
            Value::Text(value) => quote(value, text),
            Value::List(list) => {
                text.push('[');
                separated(text, list, |text, value| value.write_json(text));
                text.push(']');
            }
            Value::Fields(fields) => {
                text.push('{');
                separated(text, fields, |text, (name, value)| {
                    quote(name, text);
                    text.push(':');
                    value.write_json(text);
                });
                text.push('}');
            }
        }
    }

    /// Lines for people, with a line break at the end of each.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_lines(&mut text, 0);
        text
    }

    /// What fits one line: all but what has parts that do not.
    fn on_one_line(&self) -> Option<String> {
        match self {
            Value::Unknown => Some("unknown".into()),
            Value::Bool(value) => Some(if *value { "yes" } else { "no" }.into()),
            Value::Number(number) => Some(number.to_string()),
            // A line is one line, whatever a text has in it.
            Value::Text(text) => Some(text.chars().filter(|c| !c.is_control()).collect()),
            Value::List(list) if list.is_empty() => Some("none".into()),
            Value::Fields(fields) if fields.is_empty() => Some("none".into()),
            Value::List(list) => {
                let is_plain = |value: &Value| !matches!(value, Value::List(_) | Value::Fields(_));
                let plain = list.iter().filter(|value| is_plain(value)).filter_map(Value::on_one_line);
                let plain: Vec<_> = plain.collect();
                (plain.len() == list.len()).then(|| plain.join(", "))
            }
            Value::Fields(fields) => {
                let field = |(name, value): &(String, Value)| match value {
                    Value::Fields(inner) if !inner.is_empty() => None,
                    // Two numbers in a row would be hard to tell apart.
                    _ if name.ends_with(|c: char| c.is_ascii_digit()) => {
                        Some(format!("{name}: {}", value.on_one_line()?))
                    }
                    _ => Some(format!("{} {}", spaced(name), value.on_one_line()?)),
                };
                let fields: Option<Vec<_>> = fields.iter().map(field).collect();
                fields.map(|fields| fields.join(", "))
            }
        }
    }

    fn write_lines(&self, text: &mut String, depth: usize) {
        let indent = "  ".repeat(depth);
        let mut part = |head: &str, value: &Value| match value.on_one_line() {
            Some(line) => drop(writeln!(text, "{indent}{head}{line}")),
            None => {
                let _ = writeln!(text, "{indent}{}", head.trim_end()); // a text takes all
                value.write_lines(text, depth + 1);
            }
        };
        match self {
            Value::Fields(fields) => {
                fields.iter().for_each(|(name, value)| part(&format!("{}: ", spaced(name)), value));
            }
            Value::List(list) => list.iter().for_each(|value| part("- ", value)),
            value => part("", value),
        }
    }
}

fn spaced(name: &str) -> String {
    // Names of the interface are in capitals, and stay what they are.
    match name.chars().any(|c| c.is_ascii_lowercase()) {
        true => name.replace('_', " "),
        false => name.into(),
    }
}

fn separated<T>(text: &mut String, list: &[T], write: impl Fn(&mut String, &T)) {
    for (i, part) in list.iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        write(text, part);
    }
}

/// As JSON has it.
fn quote(value: &str, text: &mut String) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c < ' ' => drop(write!(text, "\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        let bucket =
            |below: u64, count: u64| Value::fields([("below_us", below.into()), ("count", count.into())]);
        Value::fields([
            ("version", "a \"b\"\n\\ \u{1}é".into()),
            ("up_time_s", 12u64.into()),
            ("whole", Value::Bool(true)),
            ("none_known", Value::Unknown),
            ("processes", [1u32, 2].into_iter().collect()),
            ("nothing", Value::List(Vec::new())),
            ("times", [bucket(1, 2), bucket(4, u64::MAX)].into_iter().collect()),
            (
                "misses",
                Value::fields([("GENERAL_FAILURE", Value::Number(1)), ("few_words", Value::Number(2))]),
            ),
        ])
    }

    #[test]
    fn json_has_every_value_and_escapes_texts() {
        let expected = concat!(
            r#"{"version":"a \"b\"\u000a\\ \u0001é","up_time_s":12,"whole":true,"none_known":null,"#,
            r#""processes":[1,2],"nothing":[],"#,
            r#""times":[{"below_us":1,"count":2},{"below_us":4,"count":18446744073709551615}],"#,
            r#""misses":{"GENERAL_FAILURE":1,"few_words":2}}"#
        );
        assert_eq!(sample().json(), expected);
        #[cfg(feature = "tool")]
        assert!(serde_json::from_str::<serde_json::Value>(expected).is_ok());
    }

    #[test]
    fn text_has_a_line_for_what_fits_one() {
        let expected =
            "version: a \"b\"\\ é\nup time s: 12\nwhole: yes\nnone known: unknown\nprocesses: 1, 2\n\
            nothing: none\ntimes:\n  - below us 1, count 2\n  - below us 4, count 18446744073709551615\n\
            misses: GENERAL_FAILURE 1, few words 2\n";
        assert_eq!(sample().text(), expected);
    }
}
