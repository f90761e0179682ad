//! Strings as elements of tensors.
//!
//! An element of type `str` is the number of its text in a table that the process has once. So it has eight bytes like an
//! integer, and is stored, moved, chosen and compared for equality by code that knows no strings; two elements are equal if and only if
//! their texts are. The numbers say nothing of an order, and are in no file. No text ever leaves the table.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// Bytes of all different texts of a process together.
const MOST_BYTES: usize = 1 << 30;

struct Table {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u64>,
    bytes: usize,
}

/// The empty text is number 0, which is what elements without a value are.
static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(|| {
    let empty: Arc<str> = Arc::from("");
    let numbers = HashMap::from([(empty.clone(), 0)]);
    RwLock::new(Table { texts: vec![empty], numbers, bytes: 0 })
});

/// The number of a text; `None` if the texts of the process would take more than 1 GiB.
pub fn number_of(text: &str) -> Option<u64> {
    let known = TABLE.read().unwrap_or_else(PoisonError::into_inner).numbers.get(text).copied();
    if known.is_some() {
        return known;
    }
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(&number) = table.numbers.get(text) {
        return Some(number);
    }
    let bytes = table.bytes.checked_add(text.len()).filter(|&b| b <= MOST_BYTES)?;
    let (text, number): (Arc<str>, u64) = (Arc::from(text), table.texts.len() as u64);
    table.bytes = bytes;
    table.texts.push(text.clone());
    table.numbers.insert(text, number);
    Some(number)
}

/// The text of a number; of one that no text has, the empty one.
pub fn text_of(number: u64) -> Arc<str> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let text = usize::try_from(number).ok().and_then(|n| table.texts.get(n));
    text.unwrap_or(&table.texts[0]).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_number() {
        let numbers = ["", "a", "ä", "a"].map(|t| number_of(t).expect("room"));
        assert_eq!((numbers[0], numbers[1]), (0, numbers[3]));
        assert_ne!(numbers[1], numbers[2]);
        assert_eq!(numbers.map(|n| text_of(n).to_string()), ["", "a", "ä", "a"]);
        assert_eq!(&*text_of(u64::MAX), "");
    }
}
