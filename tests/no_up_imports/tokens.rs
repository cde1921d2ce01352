//! The tokens of a Rust file: enough for paths, without a parser among the dependencies.

#[derive(Debug)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// The names and marks of a Rust file, `::` being one mark; comments and literals are left out.
pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let name_char = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let (mut i, mut line, mut counted) = (0, 1, 0);
    while i < chars.len() {
        line += chars[counted..i].iter().filter(|c| **c == '\n').count();
        counted = i;
        let c = at(i);
        if c == '/' && at(i + 1) == '/' {
            i = skip_while(&chars, i, |c| c != '\n');
        } else if c == '/' && at(i + 1) == '*' {
            i = skip_block_comment(&chars, i);
        } else if c == '"' {
            i = skip_string(&chars, i);
        } else if c == '\'' {
            // A lifetime has a name and no closing quote; anything else is a character.
            i = if at(i + 1) != '\\' && at(i + 2) != '\'' { i + 1 } else { skip_char(&chars, i) };
        } else if name_char(c) {
            let end = skip_while(&chars, i, name_char);
            let name: String = chars[i..end].iter().collect();
            let hashes = skip_while(&chars, end, |c| c == '#');
            if matches!(name.as_str(), "r" | "br" | "cr") && at(hashes) == '"' {
                i = skip_raw_string(&chars, hashes, hashes - end);
            } else {
                found.push(Token { text: name, line });
                i = end;
            }
        } else if c == ':' && at(i + 1) == ':' {
            found.push(Token { text: "::".into(), line });
            i += 2;
        } else {
            if !c.is_whitespace() {
                found.push(Token { text: c.into(), line });
            }
            i += 1;
        }
    }
    found
}

fn skip_while(chars: &[char], from: usize, keep: impl Fn(char) -> bool) -> usize {
    chars[from..].iter().position(|c| !keep(*c)).map_or(chars.len(), |n| from + n)
}

fn skip_block_comment(chars: &[char], from: usize) -> usize {
    let (mut i, mut depth) = (from, 0);
    while i < chars.len() {
        match chars[i..] {
            ['/', '*', ..] => (depth, i) = (depth + 1, i + 2),
            ['*', '/', ..] if depth == 1 => return i + 2,
            ['*', '/', ..] => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
    }
    i
}

fn skip_string(chars: &[char], from: usize) -> usize {
    let mut i = from + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn skip_char(chars: &[char], from: usize) -> usize {
    let first = if chars.get(from + 1) == Some(&'\\') { from + 3 } else { from + 2 };
    skip_while(chars, first.min(chars.len()), |c| c != '\'') + 1
}

fn skip_raw_string(chars: &[char], quote: usize, hashes: usize) -> usize {
    let closes = |i: usize| chars[i] == '"' && chars[i + 1..].iter().take(hashes).all(|c| *c == '#');
    let end = (quote + 1..chars.len()).find(|i| i + hashes < chars.len() && closes(*i));
    end.map_or(chars.len(), |i| i + 1 + hashes)
}
