//! Extents against integers, tensors against their elements, texts against themselves.

use mlc_dsl::ir::{Attr, Extent, Tensor};
use mlc_dsl::library::Source;
use mlc_dsl::syntax::{parse, print_file, same};
use mlc_proptests::{SYMBOLS, expressions, seeded, tensors};
use mlc_rewrite::stdlib;
use proptest::prelude::*;

proptest! {
    #![proptest_config(seeded(512))]

    #[test]
    fn extents_compute_as_integers_do(e in expressions(), at in prop::array::uniform3(0i64..12)) {
        let symbol = |n: &str| SYMBOLS.iter().position(|s| *s == n).map(|i| at[i]);
        let extent = e.extent();
        prop_assert_eq!(extent.eval(&symbol), Some(e.value(&at)), "{}", extent);
        let known = |n: &str| symbol(n).map(Extent::from);
        prop_assert_eq!(extent.substitute(&known).as_const(), Some(e.value(&at)), "{}", extent);
    }

    #[test]
    fn signs_and_bounds_of_extents_hold(e in expressions(), at in prop::array::uniform3(0i64..12)) {
        let extent = e.extent();
        let v = e.value(&at);
        if let Some(s) = extent.sign() {
            prop_assert_eq!(s as i64, v.signum(), "{}", extent);
        }
        for bound in -2..3 {
            if extent.at_least(bound) {
                prop_assert!(v >= bound, "{} >= {} claimed, is {}", extent, bound, v);
            }
        }
    }

    #[test]
    fn exact_quotients_multiply_back(a in expressions(), b in expressions()) {
        let (a, b) = (a.extent(), b.extent());
        if let Some(q) = (&a * &b).div_exact(&b) {
            prop_assert_eq!(&q * &b, &a * &b);
        }
    }

    #[test]
    fn tensors_hold_their_elements(t in tensors()) {
        let again = Tensor::from_f64(t.dtype(), t.shape().to_vec(), &t.to_f64());
        prop_assert_eq!(&again, &t);
        let bytes = Tensor::new(t.dtype(), t.shape().to_vec(), t.bytes().clone());
        prop_assert_eq!(bytes.ok(), Some(t.clone()));
        if !t.dtype().is_float() {
            let ints = Tensor::from_i64(t.dtype(), t.shape().to_vec(), &t.to_i64());
            prop_assert_eq!(&ints, &t);
        }
        let flat = t.reshaped(vec![t.len()]);
        prop_assert_eq!(flat.to_f64(), t.to_f64());
        let first = t.bytes().get(..t.dtype().size());
        let uniform = first.is_some_and(|f| t.bytes().chunks(f.len()).all(|c| c == f));
        prop_assert_eq!(t.splat().is_some(), uniform);
    }

    #[test]
    fn floats_as_attributes_keep_their_bits(v in any::<f64>()) {
        prop_assert_eq!(Attr::float(v).as_f64().map(f64::to_bits), Some(v.to_bits()));
    }
}

#[test]
fn shipped_texts_print_to_what_reads_the_same() {
    for Source { name, text } in stdlib::sources() {
        let (file, diags) = parse(text);
        assert!(diags.is_empty(), "{name}: {diags:?}");
        let once = print_file(&file);
        let (again, diags) = parse(&once);
        assert!(diags.is_empty(), "{name} as printed: {diags:?}");
        assert!(same(&file, &again), "{name}: printing changes what it says");
        assert_eq!(print_file(&again), once, "{name}");
    }
}
