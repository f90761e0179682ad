//! What is derived from a library and kept with it. It knows neither the library nor what is kept.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

/// A cache of one type, made when it is first asked for. A clone starts empty.
#[derive(Default)]
pub struct Derived(OnceLock<Box<dyn Any + Send + Sync>>);

impl Derived {
    /// The cache.
    ///
    /// # Panics
    /// It was asked for as another type before.
    pub(crate) fn get<T: Any + Default + Send + Sync>(&self) -> &T {
        let cache = self.0.get_or_init(|| Box::<T>::default());
        cache.downcast_ref().expect("a library keeps one type of cache")
    }
}

impl Clone for Derived {
    fn clone(&self) -> Derived {
        Derived::default()
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derived")
    }
}
