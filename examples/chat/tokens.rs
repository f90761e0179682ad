//! Tokens of byte pairs, as GPT-2 and its successors have them, from what a GGUF file says of its tokeniser.

use mlc_rewrite::{Metadata, Model};
use std::collections::HashMap;

/// The tokeniser of a file.
pub struct Tokens {
    words: Vec<String>,
    /// The byte that a letter stands for.
    bytes: HashMap<char, u8>,
    numbers: HashMap<String, u32>,
    /// How early two parts are joined.
    ranks: HashMap<(String, String), usize>,
    /// Tokens of control: they stand for themselves in a text, and are not shown.
    control: Vec<String>,
    /// Every digit is a word of its own.
    single_digits: bool,
}

impl Tokens {
    /// The tokeniser that a file describes.
    ///
    /// # Errors
    /// The file has none, or one of another kind; says which.
    pub fn of(model: &Model) -> Result<Tokens, String> {
        let list = |key: &str| match model.metadata(key) {
            Some(Metadata::Texts(list)) => Ok(list.clone()),
            _ => Err(format!("the file has no `{key}`")),
        };
        let text = |key: &str| match model.metadata(key) {
            Some(Metadata::Text(text)) => text.clone(),
            _ => String::new(),
        };
        let kind = text("tokenizer.ggml.model");
        if kind != "gpt2" {
            return Err(format!(
                "tokenisers of byte pairs (`gpt2`) are read, and the file's is `{kind}`"
            ));
        }
        let words = list("tokenizer.ggml.tokens")?;
        let merges = list("tokenizer.ggml.merges")?;
        let pair = |m: &String| m.split_once(' ').map(|(a, b)| (a.to_string(), b.to_string()));
        let ranks = merges.iter().filter_map(pair).zip(0..).collect();
        let kinds = match model.metadata("tokenizer.ggml.token_type") {
            Some(Metadata::Ints(kinds)) => kinds.clone(),
            _ => vec![],
        };
        // Type 3 are tokens of control.
        let control = words.iter().zip(&kinds).filter(|(_, kind)| **kind == 3);
        let control = control.map(|(w, _)| w.clone()).collect();
        let single_digits = text("tokenizer.ggml.pre") == "smollm";
        let numbers = words.iter().cloned().zip(0..).collect();
        let bytes = (0..=255).map(|b| (letter(b), b)).collect();
        Ok(Tokens { words, bytes, numbers, ranks, control, single_digits })
    }

    /// The tokens of a text.
    pub fn of_text(&self, text: &str) -> Vec<u32> {
        let mut out = vec![];
        let mut rest = text;
        while !rest.is_empty() {
            let next = self.control.iter().filter_map(|c| Some((rest.find(c.as_str())?, c)));
            let (plain, mark) = match next.min_by_key(|(at, c)| (*at, c.len())) {
                Some((at, c)) => (at, Some(c)),
                None => (rest.len(), None),
            };
            for word in split(&rest[..plain], self.single_digits) {
                self.joined(word, &mut out);
            }
            out.extend(mark.and_then(|c| self.numbers.get(c)));
            rest = &rest[plain + mark.map_or(0, String::len)..];
        }
        out
    }

    /// The tokens of a word: of neighbours the earliest pair is joined until none is left.
    fn joined(&self, word: &str, into: &mut Vec<u32>) {
        let mut parts: Vec<String> = word.bytes().map(|b| letter(b).to_string()).collect();
        loop {
            let rank = |i: usize| self.ranks.get(&(parts[i].clone(), parts[i + 1].clone()));
            let all = (0..parts.len().saturating_sub(1)).filter_map(|i| Some((*rank(i)?, i)));
            let Some((_, i)) = all.min() else { break };
            let second = parts.remove(i + 1);
            parts[i] += &second;
        }
        into.extend(parts.iter().filter_map(|p| self.numbers.get(p)));
    }

    /// The bytes of the text that a token stands for; none of control. A letter may take several tokens.
    pub fn bytes(&self, token: u32) -> Vec<u8> {
        let word = self.words.get(token as usize).filter(|w| !self.control.contains(w));
        let letters = word.into_iter().flat_map(|w| w.chars());
        letters.filter_map(|c| self.bytes.get(&c).copied()).collect()
    }
}

/// The letter that stands for a byte: itself if it can be seen, else one behind all bytes.
fn letter(b: u8) -> char {
    let hidden = |b: &u8| !matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match hidden(&b) {
        false => char::from(b),
        true => {
            let before = (0..b).filter(hidden).count() as u32;
            char::from_u32(256 + before).unwrap_or('\u{fffd}')
        }
    }
}

/// The words of a text: runs of letters, of digits and of other signs, each with the blank before it, and blanks.
fn split(text: &str, single_digits: bool) -> Vec<&str> {
    #[derive(PartialEq, Clone, Copy)]
    enum Kind {
        Letter,
        Digit,
        Blank,
        Sign,
    }
    let kind = |c: char| match c {
        c if c.is_alphabetic() => Kind::Letter,
        c if c.is_numeric() => Kind::Digit,
        c if c.is_whitespace() => Kind::Blank,
        _ => Kind::Sign,
    };
    let mut out = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let short = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];
        let run = |text: &str, k: Kind| -> usize {
            text.chars().take_while(|c| kind(*c) == k).map(char::len_utf8).sum()
        };
        let blanks = run(rest, Kind::Blank);
        let second = rest[first.len_utf8()..].chars().next();
        let length = if let Some(s) = short.iter().find(|s| rest.starts_with(**s)) {
            s.len()
        } else if blanks > 0 {
            let last = rest[..blanks].chars().next_back().map_or(0, char::len_utf8);
            let next = rest[blanks..].chars().next().map(kind);
            let parted = single_digits && next == Some(Kind::Digit);
            match second.map(kind) {
                // One blank belongs to the word behind it, unless each digit is alone.
                Some(k) if first == ' ' && k != Kind::Blank && !parted => 1 + run(&rest[1..], k),
                // The last of several blanks is left for what follows.
                _ if blanks < rest.len() && blanks > last && !parted => blanks - last,
                _ => blanks,
            }
        } else if single_digits && kind(first) == Kind::Digit {
            first.len_utf8()
        } else {
            run(rest, kind(first))
        };
        out.push(&rest[..length]);
        rest = &rest[length..];
    }
    out
}
