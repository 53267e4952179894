//! One source file, read as tokens: comments and strings never count, macros always do.

use std::{fs, path::Path, sync::LazyLock};

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

use crate::violation::{Violation, root};

pub struct Source {
    /// Relative to the root of the repository.
    pub path: String,
    pub text: String,
    /// Everything outside `#[cfg(test)]`.
    pub code: Vec<Token>,
    /// Everything.
    pub all: Vec<Token>,
    /// Lines inside `#[cfg(test)]` items.
    pub test_lines: usize,
    /// Names of modules declared here for tests only.
    test_modules: Vec<String>,
}

/// A word, a number, a punctuation mark, or one side of a bracket. `::` is one token.
/// Strings and characters are all the same token, `""`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

impl Source {
    pub fn parse(path: &str, text: &str) -> Source {
        let tokens: TokenStream = text.parse().unwrap_or_else(|why| panic!("{path}: {why}"));
        let mut source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
            code: Vec::new(),
            all: Vec::new(),
            test_lines: 0,
            test_modules: Vec::new(),
        };
        flatten(tokens.clone(), &mut source.all);
        let code = source.without_tests(tokens);
        flatten(code, &mut source.code);
        source
    }

    /// Under `tests/`, `benches/` or `examples/`: never part of what runs in production.
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| ["tests", "benches", "examples"].contains(&part))
    }

    /// The first directory that has a meaning: `store` for `crates/store/src/lib.rs`.
    pub fn room(&self) -> &str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next().unwrap_or_default(),
            room => room.unwrap_or_default(),
        }
    }

    pub fn violation(&self, line: usize, what: impl Into<String>) -> Violation {
        Violation { path: self.path.clone(), line, what: what.into() }
    }

    /// Every path the production code says, imports written out: `use a::{b, c::D}` says
    /// `a::b` and `a::c::D`.
    pub fn paths(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let mut rest = &self.code[..];
        while let Some(token) = rest.first() {
            if token.text == "use" && rest.get(1).is_none_or(|next| next.text != "<") {
                rest = use_tree(&rest[1..], "", &mut found);
            } else if is_word(token) {
                let (path, after) = plain_path(rest);
                found.push((token.line, path));
                rest = after;
            } else {
                rest = &rest[1..];
            }
        }
        found
    }

    /// Drops items marked `#[cfg(test)]`, counting their lines.
    fn without_tests(&mut self, tokens: TokenStream) -> TokenStream {
        let mut kept = Vec::new();
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let marked = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '#')
                && tokens.peek().is_some_and(|next| next.to_string().replace(' ', "") == "[cfg(test)]");
            if marked {
                let first_line = token.span().start().line;
                let mut item = Vec::new();
                for part in tokens.by_ref() {
                    let ends = match &part {
                        TokenTree::Punct(mark) => mark.as_char() == ';',
                        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                        _ => false,
                    };
                    item.push(part);
                    if ends {
                        break;
                    }
                }
                let last_line = item.last().map_or(first_line, |last| last.span().end().line);
                self.test_lines += last_line + 1 - first_line;
                if let [.., TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(_)] = &item[..]
                    && word == "mod"
                {
                    self.test_modules.push(name.to_string());
                }
            } else if let TokenTree::Group(group) = token {
                let mut inner = Group::new(group.delimiter(), self.without_tests(group.stream()));
                inner.set_span(group.span());
                kept.push(TokenTree::Group(inner));
            } else {
                kept.push(token);
            }
        }
        kept.into_iter().collect()
    }

    /// Where the modules that are declared here for tests only are, without extension.
    fn test_module_paths(&self) -> Vec<String> {
        let stem = self.path.trim_end_matches(".rs");
        let directory =
            ["/lib", "/main", "/mod"].iter().find_map(|name| stem.strip_suffix(name)).unwrap_or(stem);
        self.test_modules.iter().map(|name| format!("{directory}/{name}")).collect()
    }
}

/// All of the repository's Rust. Files that are compiled for tests only have no `code`.
pub fn sources() -> &'static [Source] {
    // Read once for all rules: it is by far the longest part of checking any of them.
    static ALL: LazyLock<Vec<Source>> = LazyLock::new(read_all);
    &ALL
}

fn read_all() -> Vec<Source> {
    let mut found = Vec::new();
    for directory in ["bin", "crates", "tests"] {
        read_below(directory, &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let for_tests: Vec<_> = found.iter().flat_map(Source::test_module_paths).collect();
    for source in &mut found {
        let below = |module: &String| {
            source.path == format!("{module}.rs") || source.path.starts_with(&format!("{module}/"))
        };
        if for_tests.iter().any(below) {
            source.code.clear();
            source.test_lines = source.text.lines().count();
        }
    }
    found
}

fn read_below(directory: &str, found: &mut Vec<Source>) {
    for entry in fs::read_dir(root().join(directory)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{directory}/{}", entry.file_name().into_string().unwrap());
        if entry.path().is_dir() {
            if entry.file_name() != "target" {
                read_below(&path, found);
            }
        } else if Path::new(&path).extension().is_some_and(|extension| extension == "rs") {
            found.push(Source::parse(&path, &fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

fn flatten(tokens: TokenStream, out: &mut Vec<Token>) {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        let line = token.span().start().line;
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                out.push(Token { text: open.to_owned(), line });
                flatten(group.stream(), out);
                out.push(Token { text: close.to_owned(), line: group.span_close().start().line });
            }
            TokenTree::Ident(word) => {
                let text = word.to_string().trim_start_matches("r#").to_owned();
                out.push(Token { text, line });
            }
            TokenTree::Punct(mark) => {
                let joined = mark.as_char() == ':' && mark.spacing() == Spacing::Joint;
                let text = if joined { "::".to_owned() } else { mark.to_string() };
                out.push(Token { text, line });
                if joined {
                    tokens.next();
                }
            }
            TokenTree::Literal(literal) => {
                let mut text = literal.to_string();
                if !text.starts_with(|c: char| c.is_ascii_digit()) {
                    text = "\"\"".to_owned();
                }
                out.push(Token { text, line });
            }
        }
    }
}

fn is_word(token: &Token) -> bool {
    token.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads `a::b::c` from the start of `tokens`.
fn plain_path(tokens: &[Token]) -> (String, &[Token]) {
    let mut path = tokens[0].text.clone();
    let mut rest = &tokens[1..];
    while let [separator, word, after @ ..] = rest
        && separator.text == "::"
        && is_word(word)
    {
        path = format!("{path}::{}", word.text);
        rest = after;
    }
    (path, rest)
}

/// Writes out one import below `prefix`. Stops at the `,`, `;` or `}` after it.
fn use_tree<'a>(tokens: &'a [Token], prefix: &str, found: &mut Vec<(usize, String)>) -> &'a [Token] {
    let mut path = prefix.to_owned();
    let mut rest = tokens;
    while let Some(token) = rest.first() {
        match token.text.as_str() {
            "," | ";" | "}" => break,
            "{" => {
                rest = &rest[1..];
                while rest.first().is_some_and(|token| token.text != "}") {
                    rest = use_tree(rest, &path, found);
                    if rest.first().is_some_and(|token| token.text == ",") {
                        rest = &rest[1..];
                    }
                }
                return rest.get(1..).unwrap_or_default();
            }
            // What it is called here does not matter.
            "as" => rest = rest.get(2..).unwrap_or_default(),
            "::" | "self" => rest = &rest[1..],
            word => {
                path = if path.is_empty() { word.to_owned() } else { format!("{path}::{word}") };
                rest = &rest[1..];
            }
        }
    }
    if let Some(first) = tokens.first() {
        found.push((first.line, path));
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        Source::parse("crates/store/src/lib.rs", text).paths().into_iter().map(|(_, path)| path).collect()
    }

    #[test]
    fn imports_are_written_out() {
        assert_eq!(
            paths("use std::{fmt, io::{self, Read as _}, time::*}; use a as b;"),
            ["std::fmt", "std::io", "std::io::Read", "std::time::*", "a"]
        );
    }

    #[test]
    fn comments_and_strings_say_nothing() {
        assert_eq!(
            paths("// use std::fs;\n/* tokio */ const A: &str = \"std::net::x\"; /// rand\nfn f() {}"),
            ["const", "A", "str", "doc", "fn", "f"]
        );
    }

    #[test]
    fn macros_do() {
        assert!(paths("fn f() { info!(now = ?SystemTime::now()); }").contains(&"SystemTime::now".to_owned()));
    }

    #[test]
    fn code_for_tests_is_set_apart() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() { Instant::now() }\n}\n#[cfg(test)]\nmod more;\n";
        let source = Source::parse("crates/store/src/lib.rs", text);
        assert!(!source.code.iter().any(|token| token.text == "Instant"));
        assert!(source.all.iter().any(|token| token.text == "Instant"));
        assert_eq!(source.test_lines, 6);
        assert_eq!(source.test_module_paths(), ["crates/store/src/more"]);
        assert_eq!(Source::parse("a/b.rs", text).test_module_paths(), ["a/b/more"]);
    }
}
