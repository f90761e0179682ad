//! Elements of type string: what moves them, and the operators on texts, on both backends that run them.
#![allow(
    clippy::cloned_ref_to_slice_refs,
    clippy::type_complexity,
    reason = "rows of a table look alike"
)]

use super::super::support::*;
use mlc_onnx::{parse_onnx, to_bytes};
use mlc_rewrite::{AnyArray, Device, Model, Outputs};

fn texts(shape: &[usize], v: &[&str]) -> Tensor {
    Tensor::from_strings(shape.to_vec(), v).expect("texts")
}

pub fn row(v: &[&str]) -> Tensor {
    texts(&[v.len()], v)
}

pub fn word(v: &str) -> RawAttr {
    RawAttr::Str(v.as_bytes().to_vec().into())
}

pub fn words(v: &[&str]) -> RawAttr {
    RawAttr::Strs(v.iter().map(|w| w.as_bytes().to_vec().into()).collect())
}

/// Runs a model of one node on both backends, as a session does for data that decide extents.
fn outcomes(
    domain: &str,
    opset: i64,
    op: &str,
    args: &[Tensor],
    attrs: &[(&str, RawAttr)],
    outputs: usize,
) -> [Result<Outputs, String>; 2] {
    let given: Vec<Arg> = args.iter().cloned().map(In).collect();
    let (mut raw, feeds) = single(opset, op, &given, attrs, outputs);
    raw.graph.nodes[0].domain = domain.into();
    raw.opset_imports.insert(domain.into(), opset);
    let bytes = to_bytes(&raw).expect("written");
    let back = parse_onnx(bytes.clone().into(), None).expect("read");
    assert_eq!(to_bytes(&back).expect("written"), bytes, "a file keeps texts");
    let inputs: Vec<(String, AnyArray)> =
        feeds.into_iter().enumerate().map(|(i, t)| (format!("x{i}"), t.into())).collect();
    [Device::reference(), Device::cpu().threads(1)].map(|device| {
        let model = Model::from_bytes(bytes.clone()).map_err(|e| e.to_string())?;
        let session = model.session_on(&device).map_err(|e| e.to_string())?;
        session.run(inputs.clone()).map_err(|e| e.to_string())
    })
}

#[track_caller]
pub fn yields(
    (domain, opset, op): (&str, i64, &str),
    args: &[Tensor],
    attrs: &[(&str, RawAttr)],
    expected: &[Tensor],
) {
    for outputs in outcomes(domain, opset, op, args, attrs, expected.len()) {
        let outputs = outputs.unwrap_or_else(|e| panic!("{op}: {e}"));
        for (i, wanted) in expected.iter().enumerate() {
            let found = outputs.get(&format!("y{i}")).expect("an output").tensor();
            assert_eq!(found, wanted, "{op}, output {i}");
        }
    }
}

#[track_caller]
fn refuses(op: &str, args: &[Tensor], attrs: &[(&str, RawAttr)], message: &str) {
    for outputs in outcomes("", 20, op, args, attrs, 1) {
        let e = outputs.map(|_| ()).expect_err(op);
        assert!(e.contains(message), "{op}: {e}");
    }
}

const ONNX: (&str, i64) = ("", 22);

#[test]
fn texts_move_and_compare_as_elements_of_any_type() {
    let x = texts(&[2, 2], &["a", "b", "c", ""]);
    let rows: &[(&str, &[Tensor], &[(&str, RawAttr)], Tensor)] = &[
        ("Identity", &[x.clone()], &[], x.clone()),
        ("Transpose", &[x.clone()], &[], texts(&[2, 2], &["a", "c", "b", ""])),
        (
            "Concat",
            &[x.clone(), x.clone()],
            &[("axis", int(0))],
            texts(&[4, 2], &["a", "b", "c", "", "a", "b", "c", ""]),
        ),
        ("Gather", &[x.clone(), ints(&[1], &[-1])], &[], texts(&[1, 2], &["c", ""])),
        ("Reshape", &[x.clone(), ints(&[1], &[-1])], &[], row(&["a", "b", "c", ""])),
        (
            "Slice",
            &[x.clone(), ints(&[1], &[1]), ints(&[1], &[2])],
            &[],
            texts(&[1, 2], &["c", ""]),
        ),
        ("Expand", &[row(&["a"]), ints(&[1], &[2])], &[], row(&["a", "a"])),
        ("Tile", &[row(&["a", "b"]), ints(&[1], &[2])], &[], row(&["a", "b", "a", "b"])),
        ("Pad", &[row(&["a"]), ints(&[2], &[1, 0])], &[], row(&["", "a"])),
        ("Pad", &[row(&["a"]), ints(&[2], &[0, 1]), texts(&[], &["z"])], &[], row(&["a", "z"])),
        (
            "Where",
            &[bools(&[2], &[1, 0]), row(&["a", "b"]), row(&["c", "d"])],
            &[],
            row(&["a", "d"]),
        ),
        ("Equal", &[x.clone(), row(&["a", ""])], &[], bools(&[2, 2], &[1, 0, 0, 1])),
        (
            "Compress",
            &[row(&["a", "b", "c"]), bools(&[3], &[1, 0, 1])],
            &[("axis", int(0))],
            row(&["a", "c"]),
        ),
        ("Unique", &[row(&["z", "b", "a", "b"])], &[], row(&["a", "b", "z"])),
        (
            "OneHot",
            &[ints(&[1], &[1]), ints(&[], &[2]), row(&["off", "on"])],
            &[],
            texts(&[1, 2], &["off", "on"]),
        ),
    ];
    for (op, args, attrs, wanted) in rows {
        yields((ONNX.0, ONNX.1, op), args, attrs, std::slice::from_ref(wanted));
    }
}

#[test]
fn numbers_are_written_and_read() {
    let to_text = ("to", int(8));
    for (x, wanted) in [
        (
            floats(&[5], &[314.15926, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
            row(&["314.15927", "1", "NaN", "INF", "-INF"]),
        ),
        (
            Tensor::from_f64(DType::F64, vec![2], &[0.1, -1e20]),
            row(&["0.1", "-100000000000000000000"]),
        ),
        (ints(&[2], &[-3, i64::MAX]), row(&["-3", "9223372036854775807"])),
        (Tensor::from_i64(DType::U64, vec![1], &[-1]), row(&["18446744073709551615"])),
        (bools(&[2], &[1, 0]), row(&["1", "0"])),
    ] {
        yields((ONNX.0, ONNX.1, "Cast"), &[x], std::slice::from_ref(&to_text), &[wanted]);
    }
    for (x, code, wanted) in [
        (
            row(&["3.25", "1e-5", "+INF", "nan", " 1E8 "]),
            1,
            floats(&[5], &[3.25, 1e-5, f64::INFINITY, f64::NAN, 1e8]),
        ),
        (row(&["-7", "9223372036854775807"]), 7, ints(&[2], &[-7, i64::MAX])),
        (row(&["0", "2"]), 9, bools(&[2], &[0, 1])),
        (row(&["a"]), 8, row(&["a"])),
    ] {
        let attrs = [("to", int(code))];
        match wanted.dtype() {
            // NaN is not equal to itself.
            DType::F32 => {
                let (raw, feeds) = single(22, "Cast", &[In(x)], &attrs, 1);
                check_at(&[13, 22], raw, &feeds, &[wanted]);
            }
            _ => yields((ONNX.0, ONNX.1, "Cast"), &[x], &attrs, &[wanted]),
        }
    }
    refuses("Cast", &[row(&["x"])], &[("to", int(7))], "the text \"x\" is no number of type i64");
    refuses("Cast", &[row(&["300"])], &[("to", int(2))], "is no number of type u8");
    refuses("Less", &[row(&["a"]), row(&["b"])], &[], "Less");
}

#[test]
fn texts_are_joined_split_and_matched() {
    let is = |op| (ONNX.0, ONNX.1, op);
    yields(
        is("StringConcat"),
        &[texts(&[2, 1], &["a", "ä"]), row(&["", "x"])],
        &[],
        &[texts(&[2, 2], &["a", "ax", "ä", "äx"])],
    );
    let rows: &[(&[&str], &[(&str, RawAttr)], &[&str], &[i64])] = &[
        (
            &["a.com", "b.c.d"],
            &[("delimiter", word("."))],
            &["a", "com", "", "b", "c", "d"],
            &[2, 3],
        ),
        (&["  a  b ", ""], &[], &["a", "b", "", ""], &[2, 0]),
        (&[" a b  c ", "d"], &[("maxsplit", int(1))], &["a", "b  c ", "d", ""], &[2, 1]),
        (&["a--b-", ""], &[("delimiter", word("-"))], &["a", "", "b", "", "", "", "", ""], &[4, 1]),
    ];
    for (x, attrs, parts, counts) in rows {
        let k = parts.len() / 2;
        yields(is("StringSplit"), &[row(x)], attrs, &[texts(&[2, k], parts), ints(&[2], counts)]);
    }
    yields(is("StringSplit"), &[texts(&[0], &[])], &[], &[texts(&[0, 0], &[]), ints(&[0], &[])]);
    for (pattern, x, wanted) in [
        (r"a|ab", row(&["ab", "a", "b"]), [1, 1, 0]),
        (r"\w+", row(&["ä", "a_1", ""]), [0, 1, 0]),
        (r"(?i)a.c", row(&["AäC", "a\nc", "abcd"]), [1, 0, 0]),
        (r"[\d.-]{2,3}", row(&["1-", "1.5", "12345"]), [1, 1, 0]),
    ] {
        yields(is("RegexFullMatch"), &[x], &[("pattern", word(pattern))], &[bools(&[3], &wanted)]);
    }
    for pattern in ["(", "a)(b", r"\pL", "a{1000}{1000}"] {
        refuses(
            "RegexFullMatch",
            &[row(&["a"])],
            &[("pattern", word(pattern))],
            "is not understood",
        );
    }
}

#[test]
fn stop_words_are_left_out() {
    let is = ("", 10, "StringNormalizer");
    let case = |c| ("case_change_action", word(c));
    let sensitive = ("is_case_sensitive", int(1));
    let stop = ("stopwords", words(&["monday", "ä"]));
    let x = row(&["Monday", "monday", "Äb", "Ä"]);
    yields(is, &[x.clone()], &[stop.clone()], &[row(&["Äb"])]);
    yields(
        is,
        &[x.clone()],
        &[stop.clone(), sensitive.clone(), case("LOWER")],
        &[row(&["monday", "äb", "ä"])],
    );
    yields(is, &[x.clone()], &[sensitive, case("UPPER")], &[row(&["MONDAY", "MONDAY", "ÄB", "Ä"])]);
    yields(is, &[texts(&[1, 2], &["monday", "MONDAY"])], &[stop], &[texts(&[1, 1], &[""])]);
}

#[test]
fn keys_are_encoded() {
    let floats_of = |v: &[f32]| RawAttr::Floats(v.to_vec());
    let encode = |v| ("ai.onnx.ml", v, "LabelEncoder");
    let x = row(&["b", "?", "a"]);
    let keys = ("keys_strings", words(&["a", "b"]));
    yields(
        encode(4),
        &[x.clone()],
        &[keys.clone(), ("values_int64s", list(&[5, 6]))],
        &[ints(&[3], &[6, -1, 5])],
    );
    yields(
        encode(2),
        &[x.clone()],
        &[keys.clone(), ("values_strings", words(&["x", "y"]))],
        &[row(&["y", "_Unused", "x"])],
    );
    let other =
        [keys, ("values_floats", floats_of(&[0.5, 1.5])), ("default_float", RawAttr::Float(9.0))];
    yields(encode(2), &[x.clone()], &other, &[floats(&[3], &[1.5, 9.0, 0.5])]);
    let nan =
        [("keys_floats", floats_of(&[f32::NAN, 1.0])), ("values_strings", words(&["none", "one"]))];
    yields(
        encode(4),
        &[floats(&[3], &[1.0, f64::NAN, 2.0])],
        &nan,
        &[row(&["one", "none", "_Unused"])],
    );
    let keyed = [
        ("keys_tensor", RawAttr::Tensor(row(&["a", "b"]))),
        ("values_tensor", RawAttr::Tensor(Tensor::from_i64(DType::I16, vec![2], &[3, 4]))),
        ("default_tensor", RawAttr::Tensor(Tensor::from_i64(DType::I16, vec![1], &[7]))),
    ];
    yields(encode(4), &[x.clone()], &keyed, &[Tensor::from_i64(DType::I16, vec![3], &[4, 7, 3])]);
    let classes = [("classes_strings", words(&["a", "b"]))];
    yields(encode(1), &[x.clone()], &classes, &[ints(&[3], &[1, -1, 0])]);
    yields(encode(1), &[ints(&[2], &[1, 2])], &classes, &[row(&["b", "_Unused"])]);
    let categories = [("cats_strings", words(&["a", "b"])), ("cats_int64s", list(&[10, 20]))];
    let map = ("ai.onnx.ml", 1, "CategoryMapper");
    yields(map, &[x], &categories, &[ints(&[3], &[20, -1, 10])]);
    yields(map, &[ints(&[2], &[20, 30])], &categories, &[row(&["b", "_Unused"])]);
}

#[test]
fn n_grams_of_words_are_weighted() {
    let attrs = |mode: &str| {
        vec![
            ("mode", word(mode)),
            ("min_gram_length", int(1)),
            ("max_gram_length", int(2)),
            ("max_skip_count", int(0)),
            ("ngram_counts", list(&[0, 2])),
            ("ngram_indexes", list(&[1, 0, 2])),
            ("pool_strings", words(&["a", "b", "a", "b"])),
            ("weights", RawAttr::Floats(vec![0.5, 2.0, 3.0])),
        ]
    };
    let x = row(&["a", "b", "c", "a", "b"]);
    let is = ("", 9, "TfIdfVectorizer");
    yields(is, &[x.clone()], &attrs("TF"), &[floats(&[3], &[2.0, 2.0, 2.0])]);
    yields(is, &[x.clone()], &attrs("IDF"), &[floats(&[3], &[2.0, 0.5, 3.0])]);
    yields(is, &[x], &attrs("TFIDF"), &[floats(&[3], &[4.0, 1.0, 6.0])]);
}

#[test]
fn strings_in_files_are_in_utf_8_and_in_the_file() {
    let (mut raw, _) = single(22, "Identity", &[Const(row(&["marker"]))], &[], 1);
    raw.graph
        .nodes
        .insert(0, node("Constant", &[], &["c"], &[("value_strings", words(&["p", "q"]))]));
    let bytes = to_bytes(&raw).expect("written");
    let back = parse_onnx(bytes.clone().into(), None).expect("read");
    assert_eq!(back.graph.initializers["c"], row(&["p", "q"]));
    let at = bytes.windows(6).position(|w| w == b"marker").expect("it is there");
    let mut damaged = bytes;
    damaged[at] = 0xff;
    let e = parse_onnx(damaged.into(), None).expect_err("no text");
    assert!(e.to_string().contains("a string is not in UTF-8"), "{e}");
}
