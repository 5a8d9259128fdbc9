//! Reads Rust sources the way the laws need them: words with their lines, without
//! comments, without the contents of literals and without unit tests.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the project.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// From the root of the project, such as `src/store/tree.rs`.
    pub(crate) path: String,
    /// As it is on the disk.
    pub(crate) text: String,
}

/// One word of a source: an identifier, `::`, a literal, or another single character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// A text literal is kept with its quotes; a lifetime is dropped.
    pub(crate) text: String,
    /// Counted from 1.
    pub(crate) line: usize,
}

/// A path such as `crate::store::Tree`, groups of `use` taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its identifiers in order.
    pub(crate) parts: Vec<String>,
    /// Where its last identifier stands.
    pub(crate) line: usize,
}

impl Source {
    /// Makes a source that is on no disk.
    pub(crate) fn synthetic(path: &str, text: &str) -> Self {
        let (path, text) = (path.to_owned(), text.to_owned());
        Self { path, text }
    }

    /// Returns its words, unit tests left out.
    pub(crate) fn words(&self) -> Vec<Word> {
        without_tests(&words(&self.text))
    }

    /// Returns every path of two identifiers or more, and every `use`, unit tests left out.
    pub(crate) fn named(&self) -> Vec<Named> {
        let words = self.words();
        let mut found = Vec::new();
        let mut at = 0;
        while at < words.len() {
            let follows = at
                .checked_sub(1)
                .map(|before| words[before].text.as_str())
                .is_some_and(|before| matches!(before, "::" | "."));
            if is_identifier(&words[at].text) && !follows {
                at = read_path(&words, at, &[], &mut found);
            } else {
                at += 1;
            }
        }
        found
    }

    /// Returns `path:line`.
    pub(crate) fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path)
    }

    /// Returns the module that it is, such as `["store", "tree"]`; nothing for a crate root.
    pub(crate) fn module(&self) -> Vec<&str> {
        let path = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
        if matches!(parts.last(), Some(&("mod" | "lib"))) {
            parts.pop();
        }
        parts
    }
}

/// Returns the sources of the program itself: no file that is there for unit tests only.
pub(crate) fn program() -> Vec<Source> {
    without_test_files(read(&["src"], &[".rs"]))
}

/// Drops each file below a module that is declared under `#[cfg(test)]`.
pub(crate) fn without_test_files(sources: Vec<Source>) -> Vec<Source> {
    let tests: Vec<Vec<String>> = sources.iter().flat_map(test_modules).collect();
    let is_test = |source: &Source| {
        let module = source.module();
        tests
            .iter()
            .any(|test| test.len() <= module.len() && test.iter().eq(&module[..test.len()]))
    };
    sources
        .into_iter()
        .filter(|source| !is_test(source))
        .collect()
}

fn test_modules(source: &Source) -> Vec<Vec<String>> {
    let words: Vec<String> = words(&source.text)
        .into_iter()
        .map(|word| word.text)
        .collect();
    let begins: [&[&str]; 2] = [
        &["#", "[", "cfg", "(", "test", ")", "]", "mod"],
        &[
            "#", "[", "cfg", "(", "test", ")", "]", "pub", "(", "crate", ")", "mod",
        ],
    ];
    let mut modules = Vec::new();
    for begin in begins {
        for window in words.windows(begin.len() + 2) {
            let (head, rest) = window.split_at(begin.len());
            if head == begin && rest[1] == ";" {
                let parents = source.module().into_iter().map(str::to_owned);
                modules.push(parents.chain([rest[0].clone()]).collect());
            }
        }
    }
    modules
}

/// Returns the files below `dirs` of the project whose name ends in one of `endings`, sorted.
pub(crate) fn read(dirs: &[&str], endings: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pending: Vec<PathBuf> = dirs.iter().map(|dir| root.join(dir)).collect();
    let mut sources = Vec::new();
    while let Some(path) = pending.pop() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !matches!(name, "target" | ".git") {
                let entries = fs::read_dir(&path).unwrap();
                pending.extend(entries.map(|entry| entry.unwrap().path()));
            }
        } else if path.exists() && endings.iter().any(|ending| name.ends_with(ending)) {
            let shown = path.strip_prefix(root).unwrap().to_str().unwrap();
            sources.push(Source::synthetic(
                shown,
                &fs::read_to_string(&path).unwrap(),
            ));
        }
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    sources
}

/// Whether a word is an identifier or a keyword.
pub(crate) fn is_identifier(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Reads the path that starts at `at`, appends it to `found`, and returns where it ends.
fn read_path(words: &[Word], at: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
    let text = |at: usize| words.get(at).map_or("", |word| word.text.as_str());
    let mut parts = prefix.to_vec();
    let mut at = at;
    loop {
        parts.push(text(at).to_owned());
        at += 1;
        if text(at) != "::" || !(is_identifier(text(at + 1)) || matches!(text(at + 1), "{" | "*")) {
            break;
        }
        at += 1;
        if text(at) == "{" {
            return read_group(words, at + 1, &parts, found);
        }
    }
    let is_use = at
        .checked_sub(2)
        .is_some_and(|before| text(before) == "use");
    if 1 < parts.len() || is_use {
        let line = words[at - 1].line;
        found.push(Named { parts, line });
    }
    at
}

fn read_group(words: &[Word], at: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
    let mut at = at;
    while let Some(word) = words.get(at) {
        match word.text.as_str() {
            "}" => return at + 1,
            // `use a::b as c`: the new name is no path.
            "as" => at += 2,
            text if is_identifier(text) || text == "*" => at = read_path(words, at, prefix, found),
            _ => at += 1,
        }
    }
    at
}

/// Drops each item under `#[cfg(test)]` or `#[test]`.
fn without_tests(words: &[Word]) -> Vec<Word> {
    let text = |at: usize| words.get(at).map_or("", |word| word.text.as_str());
    let mut kept = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let is_test = text(at) == "#"
            && text(at + 1) == "["
            && (text(at + 2) == "test" || (text(at + 2) == "cfg" && text(at + 4) == "test"));
        if !is_test {
            kept.push(words[at].clone());
            at += 1;
            continue;
        }
        // The item ends with its block, or with a semicolon before there is one; a field, a
        // variant or an arm ends with a comma, or with the block around it.
        let (mut depth, mut inner) = (0_usize, 0_usize);
        while at < words.len() {
            let word = text(at);
            at += 1;
            match word {
                "(" | "[" => inner += 1,
                ")" | "]" => inner = inner.saturating_sub(1),
                "{" => depth += 1,
                "}" if depth == 0 => {
                    at -= 1;
                    break;
                }
                "}" if depth == 1 => break,
                "}" => depth -= 1,
                ";" | "," if depth == 0 && inner == 0 => break,
                _ => {}
            }
        }
    }
    kept
}

fn words(text: &str) -> Vec<Word> {
    let mut reader = Reader {
        rest: text,
        line: 1,
    };
    let mut words = Vec::new();
    while !reader.rest.is_empty() {
        let line = reader.line;
        if let Some(text) = reader.next_word() {
            let text = text.to_owned();
            words.push(Word { text, line });
        }
    }
    words
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    /// Takes the next word, or one piece that is no word.
    fn next_word(&mut self) -> Option<&'a str> {
        let first = self.rest.chars().next()?;
        if self.rest.starts_with("//") {
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            return None;
        }
        if self.rest.starts_with("/*") {
            self.take(comment_length(self.rest));
            return None;
        }
        if let Some(length) = literal_length(self.rest) {
            return Some(self.take(length));
        }
        if first == '\'' {
            return self.after_quote();
        }
        if self.rest.starts_with("::") {
            return Some(self.take(2));
        }
        if is_part(first) {
            return Some(self.take(name_length(self.rest)));
        }
        let taken = self.take(first.len_utf8());
        (!first.is_whitespace()).then_some(taken)
    }

    /// Takes a character literal, or drops a lifetime.
    fn after_quote(&mut self) -> Option<&'a str> {
        let mut chars = self.rest.char_indices().skip(1);
        let (_, first) = chars.next()?;
        let closing = if first == '\\' {
            chars.next();
            chars.find(|(_, char)| *char == '\'')
        } else {
            chars.next().filter(|(_, char)| *char == '\'')
        };
        if let Some((end, _)) = closing {
            return Some(self.take(end + 1));
        }
        self.take(1);
        self.take(name_length(self.rest));
        None
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }
}

fn is_part(part: char) -> bool {
    part.is_ascii_alphanumeric() || part == '_'
}

fn name_length(text: &str) -> usize {
    text.find(|part| !is_part(part)).unwrap_or(text.len())
}

/// The length of a comment `/* … */`, which may hold others.
fn comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the text literal at the start, with its prefix; `None` where there is none.
fn literal_length(text: &str) -> Option<usize> {
    let unprefixed = text.trim_start_matches(['b', 'c', 'r']);
    let prefix = text.len() - unprefixed.len();
    if 2 < prefix {
        return None;
    }
    let hashes = unprefixed.len() - unprefixed.trim_start_matches('#').len();
    let content = unprefixed.get(hashes..)?.strip_prefix('"')?;
    let start = prefix + hashes + 1;
    let is_raw = text
        .get(..prefix)
        .is_some_and(|prefix| prefix.contains('r'));
    if is_raw {
        let closing = format!("\"{}", "#".repeat(hashes));
        let end = content
            .find(&closing)
            .map_or(content.len(), |end| end + closing.len());
        return Some(start + end);
    }
    if hashes != 0 {
        return None;
    }
    let mut chars = content.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => {
                chars.next();
            }
            '"' => return Some(start + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

#[test]
fn a_source_is_read_without_comments_literals_and_tests() {
    let source = Source::synthetic(
        "src/a/b.rs",
        r##"//! use crate::no;
use crate::{one, two::{self, Three as Four}};
/* crate::no /* crate::no */ */
fn a<'a>(x: &'a str) -> char { "crate::no \" crate::no"; r#"" crate::no"#; '"' }
#[cfg(test)]
mod tests { fn b() { crate::no() } }
fn c() { std::time::Instant::now().elapsed() }
"##,
    );
    let found: Vec<(String, usize)> = source
        .named()
        .into_iter()
        .map(|named| (named.parts.join("::"), named.line))
        .collect();
    let expected = [
        ("crate::one", 2),
        ("crate::two::self", 2),
        ("crate::two::Three", 2),
        ("std::time::Instant::now", 7),
    ];
    assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    assert_eq!(source.module(), ["a", "b"]);
    assert_eq!(Source::synthetic("src/a/mod.rs", "").module(), ["a"]);
}
