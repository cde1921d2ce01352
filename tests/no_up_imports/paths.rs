//! Paths in tokens.

use super::tokens::Token;

/// A path that starts at the crate's root.
#[derive(Debug)]
pub struct Named {
    pub segments: Vec<String>,
    pub line: usize,
}

/// Every path in `tokens` that is written from `crate` or climbs to it with `super`; a group gives one for each member.
pub fn named_paths(tokens: &[Token], module: &[String]) -> Vec<Named> {
    let mut found = Vec::new();
    let mut depth = 0usize;
    // The brace depths at which inline modules were opened: `super` climbs out of these first.
    let mut inline: Vec<usize> = Vec::new();
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let mut i = 0;
    while i < tokens.len() {
        match text(i) {
            "{" => {
                depth += 1;
                if i >= 2 && text(i - 2) == "mod" {
                    inline.push(depth);
                }
            }
            "}" => {
                if inline.last() == Some(&depth) {
                    inline.pop();
                }
                depth = depth.saturating_sub(1);
            }
            "crate" if text(i + 1) == "as" => {
                found.push(Named { segments: vec!["(an alias of the crate)".into()], line: tokens[i].line });
            }
            "crate" if text(i + 1) == "::" => tree(tokens, &mut (i + 2), &[], &mut found),
            "super" => {
                let mut climbed = 1;
                while text(i + 1) == "::" && text(i + 2) == "super" {
                    climbed += 1;
                    i += 2;
                }
                if climbed >= module.len() + inline.len() && text(i + 1) == "::" {
                    tree(tokens, &mut (i + 2), &[], &mut found);
                }
            }
            _ => {}
        }
        i += 1;
    }
    found
}

/// Reads what follows `prefix::` at `*i`: a path, or a group of them.
pub fn tree(tokens: &[Token], i: &mut usize, prefix: &[String], found: &mut Vec<Named>) {
    let mut segments = prefix.to_vec();
    while let Some(token) = tokens.get(*i) {
        if token.text == "{" {
            *i += 1;
            while tokens.get(*i).is_some_and(|t| t.text != "}") {
                let before = *i;
                tree(tokens, i, &segments, found);
                while tokens.get(*i).is_some_and(|t| t.text != "," && t.text != "}") {
                    *i += 1;
                }
                if tokens.get(*i).is_some_and(|t| t.text == ",") || *i == before {
                    *i += 1;
                }
            }
            *i += 1;
            return;
        }
        if token.text != "self" {
            segments.push(token.text.clone());
        }
        let line = token.line;
        *i += 1;
        let goes_on = tokens.get(*i).is_some_and(|t| t.text == "::")
            && tokens.get(*i + 1).is_some_and(|t| t.is_name() || t.text == "{" || t.text == "*");
        if !goes_on {
            found.push(Named { segments, line });
            return;
        }
        *i += 1;
    }
}
