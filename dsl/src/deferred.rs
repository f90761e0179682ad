//! Lists that are decoded when they are first read: a command that asks for no law does not make thousands of them.
//!
//! Never checks what it decodes: the bytes are those that the same build encoded.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// A list, or the bytes that say it.
pub struct Deferred<T> {
    list: OnceLock<Vec<T>>,
    /// What to decode where there is no list yet.
    bytes: Arc<[u8]>,
}

impl<T> From<Vec<T>> for Deferred<T> {
    fn from(list: Vec<T>) -> Deferred<T> {
        Deferred { list: OnceLock::from(list), bytes: Arc::from([]) }
    }
}

impl<T> Default for Deferred<T> {
    fn default() -> Deferred<T> {
        vec![].into()
    }
}

impl<T: for<'de> Deserialize<'de>> Deref for Deferred<T> {
    type Target = Vec<T>;

    /// # Panics
    /// The bytes are not those of such a list.
    fn deref(&self) -> &Vec<T> {
        let decoded = || postcard::from_bytes(&self.bytes).expect("the same build encoded it");
        self.list.get_or_init(decoded)
    }
}

impl<T: for<'de> Deserialize<'de>> DerefMut for Deferred<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        let _ = &**self;
        self.list.get_mut().expect("it is decoded")
    }
}

impl<'a, T: for<'de> Deserialize<'de>> IntoIterator for &'a Deferred<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Clone> Clone for Deferred<T> {
    fn clone(&self) -> Deferred<T> {
        Deferred { list: self.list.clone(), bytes: self.bytes.clone() }
    }
}

impl<T: fmt::Debug + for<'de> Deserialize<'de>> fmt::Debug for Deferred<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Serialize + for<'de> Deserialize<'de>> Serialize for Deferred<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = postcard::to_stdvec(&**self).map_err(serde::ser::Error::custom)?;
        serializer.serialize_bytes(&bytes)
    }
}

impl<'de, T> Deserialize<'de> for Deferred<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Deferred<T>, D::Error> {
        deserializer.deserialize_bytes(Encoded(PhantomData))
    }
}

struct Encoded<T>(PhantomData<T>);

impl<T> Visitor<'_> for Encoded<T> {
    type Value = Deferred<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a list")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Deferred<T>, E> {
        Ok(Deferred { list: OnceLock::new(), bytes: bytes.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_decoded_once_and_may_change() {
        let list: Deferred<String> = vec!["a".to_string(), "b".to_string()].into();
        let bytes = postcard::to_stdvec(&list).expect("encodes");
        let mut again: Deferred<String> = postcard::from_bytes(&bytes).expect("decodes");
        assert!(again.list.get().is_none());
        let copy = again.clone();
        again.push("c".into());
        assert_eq!(*again, ["a", "b", "c"]);
        assert_eq!(*copy, ["a", "b"]);
        assert_eq!(postcard::to_stdvec(&copy).expect("encodes"), bytes);
    }
}
