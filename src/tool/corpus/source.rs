//! A reader of the C++ that the examples are written in: functions that return one nested aggregate, and the names
//! under which they are added to the list of tests.
//!
//! It knows braces, designated members, numbers, names and calls, and nothing of what they mean.

/// A value in the source.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number with its suffix, or a name with its scopes, as it is written.
    Word(String),
    /// `name({...})`
    Call(String, Vec<Value>),
    /// `{...}` of values, or of nothing.
    List(Vec<Value>),
    /// `{...}` of members, with what a comment calls it.
    Record { label: String, line: usize, members: Vec<(String, Value)> },
}

/// A model and the name it is tested by.
#[derive(Debug)]
pub struct Found {
    pub name: String,
    pub line: usize,
    pub value: Value,
}

/// The models of a source file. The error starts with the line at which it could not be read.
pub fn models(text: &str) -> Result<Vec<Found>, String> {
    const FUNCTION: &str = "const TestModel& ";
    const START: &str = "static TestModel model = ";
    const ADD: &str = "TestModelManager::get().add(";
    let mut functions: Vec<(String, usize, Value)> = Vec::new();
    let mut found = Vec::new();
    let mut name = None;
    let mut at = 0;
    // Lines matter outside of aggregates only; those are read as a whole.
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let line = rest[..end].trim();
        let number = || line_of(text, at);
        if let Some(function) = line.strip_prefix(FUNCTION) {
            name = function.split('(').next().map(str::to_string);
        } else if let Some(start) = rest[..end].find(START) {
            let mut parser = Parser { text, at: at + start + START.len(), counted: (at, number()) };
            let value = parser.value()?;
            let name = name.take().ok_or_else(|| format!("{}: a model outside of a function", number()))?;
            functions.push((name, number(), value));
            at = parser.at;
            continue;
        } else if let Some(start) = line.find(ADD) {
            let wrong = || format!("{}: expected a name in quotes and a function", number());
            let (test, function) = line[start + ADD.len()..].split_once(',').ok_or_else(wrong)?;
            let test =
                test.trim().strip_prefix('"').and_then(|test| test.strip_suffix('"')).ok_or_else(wrong)?;
            let function = function.trim().split('(').next().ok_or_else(wrong)?;
            let of = functions.iter().position(|(name, ..)| name == function);
            let of = of.ok_or_else(|| format!("{}: no function {function} before this", number()))?;
            let (_, line, value) = functions.swap_remove(of);
            found.push(Found { name: test.into(), line, value });
        }
        at += end;
    }
    match functions.first() {
        Some((name, line, _)) => Err(format!("{line}: {name} is not added to the tests")),
        None => Ok(found),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count()
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// A place before `at`, and the line that it is on.
    counted: (usize, usize),
}

/// Aggregates within aggregates: examples have half as many.
const DEEPEST: usize = 24;

impl Parser<'_> {
    fn value(&mut self) -> Result<Value, String> {
        self.nested(0)
    }

    fn nested(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEEPEST {
            return Err(self.wrong("fewer braces within braces"));
        }
        self.skip_space();
        if !self.take('{') {
            return self.word(depth);
        }
        let line = self.line();
        let label = self.comment();
        let mut members = Vec::new();
        let mut values = Vec::new();
        loop {
            self.skip_space();
            if self.take('}') {
                break;
            }
            if self.take('.') {
                let name = self.name();
                self.skip_space();
                if name.is_empty() || !self.take('=') {
                    return Err(self.wrong("a member's name and ="));
                }
                members.push((name, self.nested(depth + 1)?));
            } else {
                values.push(self.nested(depth + 1)?);
            }
            self.skip_space();
            if !self.take(',') && !self.rest().starts_with('}') {
                return Err(self.wrong(", or }"));
            }
        }
        match (members.is_empty(), values.is_empty()) {
            (true, _) => Ok(Value::List(values)),
            (false, true) => Ok(Value::Record { label, line, members }),
            (false, false) => Err(self.wrong("members or values, not both")),
        }
    }

    /// A number or a name; with an aggregate in parentheses, a call.
    fn word(&mut self, depth: usize) -> Result<Value, String> {
        let word = self.name();
        if word.is_empty() {
            return Err(self.wrong("a value"));
        }
        if !self.take('(') {
            return Ok(Value::Word(word));
        }
        let argument = self.nested(depth + 1)?;
        self.skip_space();
        match (self.take(')'), argument) {
            (true, Value::List(values)) => Ok(Value::Call(word, values)),
            _ => Err(self.wrong("a list in parentheses")),
        }
    }

    fn name(&mut self) -> String {
        let rest = self.rest();
        let part = |c: char| c.is_ascii_alphanumeric() || "_:<>.+-".contains(c);
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let name = rest[..end].to_string();
        self.at += end;
        name
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn take(&mut self, c: char) -> bool {
        let there = self.rest().starts_with(c);
        if there {
            self.at += c.len_utf8();
        }
        there
    }

    /// The text of a comment that ends this line, if one does.
    fn comment(&mut self) -> String {
        let spaces = self.rest().len() - self.rest().trim_start_matches(' ').len();
        match self.rest()[spaces..].strip_prefix("//") {
            Some(comment) => comment.lines().next().unwrap_or_default().trim().to_string(),
            None => String::new(),
        }
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            let spaces = rest.len() - trimmed.len();
            let comment = match trimmed.starts_with("//") {
                true => trimmed.find('\n').unwrap_or(trimmed.len()),
                false => 0,
            };
            self.at += spaces + comment;
            if comment == 0 {
                return;
            }
        }
    }

    /// The line that this is on, counted from where it was last asked for.
    fn line(&mut self) -> usize {
        let (from, line) = self.counted;
        let ends = self.text.as_bytes()[from..self.at].iter().filter(|&&byte| byte == b'\n').count();
        self.counted = (self.at, line + ends);
        self.counted.1
    }

    fn wrong(&self, expected: &str) -> String {
        let rest: String = self.rest().chars().take(20).take_while(|&c| c != '\n').collect();
        format!("{}: expected {expected}, found {rest:?}", line_of(self.text, self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
const TestModel& get_it() {
    static TestModel model = { // main
        .list = {1, -2.5f},  // a comment
        .call = A::b<float>({1e-3f}),
        .none = {},
    };
    return model;
}
const auto dummy = TestModelManager::get().add("it", get_it());
"#;

    #[test]
    fn a_model_is_read_with_its_names() {
        let found = models(SOURCE).unwrap();
        let word = |text: &str| Value::Word(text.into());
        let members = vec![
            ("list".into(), Value::List(vec![word("1"), word("-2.5f")])),
            ("call".into(), Value::Call("A::b<float>".into(), vec![word("1e-3f")])),
            ("none".into(), Value::List(vec![])),
        ];
        assert_eq!((found[0].name.as_str(), found[0].line), ("it", 3));
        assert_eq!(found[0].value, Value::Record { label: "main".into(), line: 3, members });
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_line() {
        for (from, to, expected) in [
            ("1, -2.5f}", "1 -2.5f}", "4: expected , or }"),
            ("({1e-3f})", "(1e-3f)", "5: expected a list in parentheses"),
            (".none = {},", ".none {},", "6: expected a member's name and ="),
            ("get_it());", "get_other());", "10: no function get_other"),
            ("const auto", "// const auto", ""),
        ] {
            let answer = models(&SOURCE.replace(from, to)).map(|found| found.len());
            match expected {
                "" => assert_eq!(answer, Ok(1), "a comment before it does not matter"),
                _ => assert!(answer.clone().is_err_and(|why| why.starts_with(expected)), "{answer:?}"),
            }
        }
        let deep = format!("const TestModel& f() {{\n static TestModel model = {}", "{".repeat(100_000));
        assert!(models(&deep).is_err());
    }
}
