//! NumPy files: round trips, the variants that NumPy writes, and corruption.

use bytes::Bytes;
use mlc_dsl::ir::{DType, Tensor};
use mlc_files::npz::{NpzError, read_npy, read_npz, write_npy, write_npz};
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use tempfile::TempDir;

fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.np");
    fs::write(&path, bytes).expect("written");
    (dir, path)
}

/// A `.npy` file of version `v` with this header.
fn npy(v: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY".to_vec();
    out.extend([v, 0]);
    match v {
        1 => out.extend((header.len() as u16).to_le_bytes()),
        _ => out.extend((header.len() as u32).to_le_bytes()),
    }
    out.extend(header.bytes());
    out.extend(data);
    out
}

fn dict(descr: &str, fortran: &str, shape: &str) -> String {
    format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}")
}

fn parse(bytes: &[u8]) -> Result<Tensor, NpzError> {
    let (_dir, path) = file(bytes);
    read_npy(&path)
}

#[track_caller]
fn refused(bytes: &[u8], message: &str) {
    let e = parse(bytes).expect_err("an error");
    assert!(e.to_string().contains(message), "`{e}` does not say `{message}`");
    assert!(e.help().is_some() && e.to_string().contains("a.np"), "{e}");
}

/// An archive with these members, deflated.
fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated);
    for (name, bytes) in members {
        zip.start_file(*name, options).expect("an entry");
        zip.write_all(bytes).expect("written");
    }
    zip.finish().expect("an archive").into_inner()
}

#[test]
fn every_version_and_order_is_read() {
    let le: Vec<u8> = [1f32, 2., 3., 4., 5., 6.].iter().flat_map(|v| v.to_le_bytes()).collect();
    let be: Vec<u8> = [1f32, 2., 3., 4., 5., 6.].iter().flat_map(|v| v.to_be_bytes()).collect();
    let straight = [1., 2., 3., 4., 5., 6.];
    for v in 1..=3 {
        let t = parse(&npy(v, &dict("<f4", "False", "(2, 3)"), &le)).expect("an array");
        assert_eq!((t.shape(), t.to_f64()), (&[2, 3][..], straight.to_vec()));
    }
    let t = parse(&npy(1, &dict(">f4", "False", "(6,)"), &be)).expect("an array");
    assert_eq!(t.to_f64(), straight);
    let t = parse(&npy(1, &dict("<f4", "True", "(2, 3)"), &le)).expect("an array");
    assert_eq!(t.to_f64(), [1., 3., 5., 2., 4., 6.]);
    let t = parse(&npy(1, &dict(">f4", "True", "(1, 3, 2)"), &be)).expect("an array");
    assert_eq!(t.to_f64(), [1., 4., 2., 5., 3., 6.]);
    let t = parse(&npy(1, &dict("<f4", "True", "(2, 0, 3)"), &[])).expect("an array");
    assert!(t.is_empty());
    let t = parse(&npy(1, &dict("|b1", "False", "()"), &[9])).expect("a scalar");
    assert_eq!((t.dtype(), &t.bytes()[..]), (DType::Bool, &[1][..]));
    let python2 = "{\"shape\":(2L,),\"descr\":\"<i2\",\"fortran_order\":False}\n";
    let t = parse(&npy(1, python2, &[1, 0, 2, 0])).expect("an array");
    assert_eq!(t.to_i64(), [1, 2]);
}

#[test]
fn bad_arrays_are_refused() {
    let good = |shape| dict("<f4", "False", shape);
    refused(&npy(1, &good("(2,)"), &[0; 7]), "8 bytes of elements are declared, 7 are there");
    refused(&npy(1, &good("(2,)"), &[0; 9]), "1 bytes follow the array");
    refused(&npy(1, &good("(99999999999,)"), &[]), "are declared");
    refused(&npy(1, &good("(9999999999999, 9999999999999, 0)"), &[]), "addressed");
    refused(&npy(1, &good("(99999999999999999999999,)"), &[]), "not understood");
    refused(&npy(1, &good("(-1,)"), &[]), "not understood");
    refused(&npy(1, &dict("|O", "False", "(2,)"), &[]), "element type `|O` is not supported");
    refused(&npy(1, &dict("<c8", "False", "(2,)"), &[]), "`<c8`");
    refused(&npy(1, &dict("", "False", "(2,)"), &[]), "``");
    refused(&npy(1, &dict("<f4", "Maybe", "(2,)"), &[]), "not understood");
    refused(&npy(1, "{'descr': [('a', '<f4')], }", &[]), "structured");
    refused(&npy(1, "{'descr': '<f4', 'shape': (1,)}", &[]), "not understood");
    refused(&npy(1, "{'descr': '<f4', 'descr': '<f8'}", &[]), "not understood");
    refused(&npy(4, &good("()"), &[0; 4]), "version 4");
    refused(b"\x93NUMPY\x02\0\xff\xff\xff\xff", "too long");
    refused(b"\x93NUMPY\x01\0\xff\xff{", "cut off");
    refused(b"\x93NUM", "cut off");
    refused(b"", "cut off");
    refused(b"something else", "does not begin");
    refused(&zipped(&[]), "archive");
    assert!(read_npy("no/such/file.npy").expect_err("an error").help().is_some());
}

#[test]
fn bad_archives_are_refused() {
    let says = |bytes: &[u8], message: &str| {
        let (_dir, path) = file(bytes);
        let e = read_npz(&path).expect_err("an error");
        assert!(e.to_string().contains(message), "`{e}` does not say `{message}`");
        assert!(e.help().is_some(), "{e}");
    };
    let one = npy(1, &dict("|u1", "False", "(3,)"), &[1, 2, 3]);
    let (_dir, path) = file(&zipped(&[("a.npy", &one), ("b", &one)]));
    assert_eq!(read_npz(&path).expect("deflated").len(), 2);
    says(&one, "single array");
    says(b"nothing", "");
    says(&zipped(&[("a.npy", &one), ("a", &one)]), "two arrays have the name `a`");
    says(&zipped(&[("a.npy", b"text")]), "array `a`: ");
    says(&zipped(&[("a.npy", &npy(1, &dict("|u1", "False", "(3,)"), &[1; 4]))]), "more are there");
    says(&zipped(&[("a.npy", &npy(1, &dict("|u1", "False", "(3,)"), &[1; 2]))]), "fewer are there");
    let huge = npy(1, &dict("|u1", "False", "(4000000000,)"), &[0; 1000]);
    says(&zipped(&[("a.npy", &huge)]), "4000000000 bytes are declared in a small");
    // A bomb: more zeros than the header admits are never unpacked.
    let bomb = npy(1, &dict("|u1", "False", "(3,)"), &vec![0; 4 << 20]);
    says(&zipped(&[("a.npy", &bomb)]), "more are there");
    let mut cut = zipped(&[("a.npy", &one)]);
    cut.truncate(cut.len() - 8);
    says(&cut, "");
    let mut flipped = zipped(&[("a.npy", &one)]);
    flipped[60] ^= 0xff;
    says(&flipped, "array `a`");
}

#[test]
fn archives_are_the_same_each_time_and_replace_what_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("out.npz");
    let arrays = [("0/x:1".to_string(), Tensor::from_f32(vec![2], vec![1.0, 2.0]))];
    write_npz(&path, &arrays).expect("written");
    let first = fs::read(&path).expect("a file");
    write_npz(&path, &arrays).expect("written");
    assert_eq!(first, fs::read(&path).expect("a file"));
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1, "no temporary file stays");
    let twice = [arrays[0].clone(), arrays[0].clone()];
    let e = write_npz(&path, &twice).expect_err("one name twice");
    assert!(e.to_string().contains("`0/x:1`") && e.help().is_some(), "{e}");
    let long = [("n".repeat(70_000), arrays[0].1.clone())];
    assert!(write_npz(&path, &long).is_err());
    assert_eq!(first, fs::read(&path).expect("a failed write changes nothing"));
    assert!(write_npz(dir.path().join("none/out.npz"), &arrays).is_err());
}

#[test]
fn damage_never_panics() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.npz");
    let arrays: Vec<(String, Tensor)> = DType::ALL
        .iter()
        .map(|&d| (d.to_string(), Tensor::from_i64(d, vec![2, 2], &[0, 1, 1, 0])))
        .collect();
    write_npz(&path, &arrays).expect("written");
    let stored = fs::read(&path).expect("a file");
    let deflated = zipped(&[("a.npy", &npy(1, &dict("<f8", "True", "(4, 4)"), &[7; 128]))]);
    let single = npy(2, &dict(">i4", "True", "(2, 2)"), &[7; 16]);
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below.max(1) as u64) as usize
    };
    for round in 0..3000 {
        let mut bytes = [&stored, &deflated, &single][round % 3].clone();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            match random(4) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << random(8),
                1 => bytes.truncate(at),
                2 => bytes.insert(at, random(256) as u8),
                _ => {
                    bytes.splice(at..at, [0xff; 4]);
                }
            }
        }
        fs::write(&path, &bytes).expect("written");
        for e in [read_npz(&path).err(), read_npy(&path).err()].into_iter().flatten() {
            assert!(!e.to_string().is_empty());
        }
    }
}

/// The element types that NumPy has.
fn dtypes() -> Vec<DType> {
    DType::ALL.into_iter().filter(|d| !d.is_small()).collect()
}

#[test]
fn texts_are_code_units_of_32_bits() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.npz");
    let texts =
        |shape: &[usize], v: &[&str]| Tensor::from_strings(shape.to_vec(), v).expect("texts");
    let arrays = [
        ("x".to_string(), texts(&[2, 2], &["", "ä𝄞", "abc", "a"])),
        ("none".to_string(), texts(&[0], &[])),
        ("empty".to_string(), texts(&[1], &[""])),
    ];
    write_npz(&path, &arrays).expect("written");
    let back = read_npz(&path).expect("read");
    assert_eq!(back.into_iter().collect::<Vec<_>>(), arrays);
    let big = [0, 0, 0, b'a', 0, 0, 0, 0, 0, 0, 0, b'b', 0, 0, 0, b'c'];
    for (descr, bytes, wanted) in [
        (">U2", &big[..], Ok(["a", "bc"])),
        ("<U0", &[], Ok(["", ""])),
        ("<U1", &[0xff; 8], Err("an element is no text")),
        ("<U4611686018427387904", &[], Err("its texts are too long")),
        ("<U99999999999", &[], Err("bytes of elements are declared")),
        ("|S1", &[], Err("element type `|S1` is not supported")),
    ] {
        let path = dir.path().join("a.npy");
        fs::write(&path, npy(1, &dict(descr, "False", "(2,)"), bytes)).expect("written");
        match (read_npy(&path), wanted) {
            (Ok(t), Ok(v)) => assert_eq!(t, texts(&[2], &v), "{descr}"),
            (Err(e), Err(m)) => assert!(e.to_string().contains(m), "{descr}: {e}"),
            (found, _) => panic!("{descr}: {found:?}"),
        }
    }
}

#[test]
fn small_types_are_written_as_their_codes() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.npy");
    for d in DType::ALL.into_iter().filter(|d| d.is_small()) {
        let codes = if d == DType::I4 || d == DType::I2 { DType::I8 } else { DType::U8 };
        let t = Tensor::from_f64(d, vec![2, 2], &[1.0, 0.5, -1.0, 3.0]);
        write_npy(&path, &t).expect("written");
        let back = read_npy(&path).expect("read");
        assert_eq!((back.dtype(), back.bytes()), (codes, t.bytes()), "{d}");
        assert_eq!(back.with_codes_read(d), t, "{d}");
    }
}

fn a_tensor() -> impl Strategy<Value = Tensor> {
    let dtype = prop::sample::select(dtypes());
    let with_bytes = |(d, shape): (DType, Vec<usize>)| {
        let n = shape.iter().product::<usize>() * d.size();
        let byte = if d == DType::Bool { 0..=1u8 } else { 0..=255 };
        prop::collection::vec(byte, n)
            .prop_map(move |data| Tensor::new(d, shape.clone(), Bytes::from(data)).expect("fits"))
    };
    (dtype, prop::collection::vec(0usize..5, 0..5)).prop_flat_map(with_bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn any_arrays_come_back(arrays in prop::collection::btree_map(".{0,12}", a_tensor(), 0..4)) {
        let arrays: Vec<(String, Tensor)> = arrays.into_iter().collect();
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.npz");
        write_npz(&path, &arrays).expect("written");
        let back = read_npz(&path).expect("read");
        prop_assert_eq!(back.into_iter().collect::<Vec<_>>(), arrays.clone());
        for (_, t) in &arrays {
            write_npy(&path, t).expect("written");
            prop_assert_eq!(&read_npy(&path).expect("read"), t);
        }
    }
}
