//! Damaged files of weights: each is refused with its place and reason, and none makes the reader panic.

use bytes::Bytes;
use mlc_weights::{Metadata, StoredKind, WeightFile, WeightsError, read_folder, read_gguf};
use std::path::Path;

fn text(into: &mut Vec<u8>, s: &str) {
    into.extend((s.len() as u64).to_le_bytes());
    into.extend(s.as_bytes());
}

/// A file of two keys and two tensors, the second of blocks of type 3.
fn sound() -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend(2u64.to_le_bytes());
    out.extend(3u64.to_le_bytes());
    text(&mut out, "general.architecture");
    out.extend(8u32.to_le_bytes());
    text(&mut out, "small");
    text(&mut out, "small.eps");
    out.extend(6u32.to_le_bytes());
    out.extend(0.5f32.to_le_bytes());
    text(&mut out, "small.words");
    out.extend(9u32.to_le_bytes());
    out.extend(8u32.to_le_bytes());
    out.extend(2u64.to_le_bytes());
    text(&mut out, "a");
    text(&mut out, "bc");
    for (name, dims, number, offset) in
        [("scale", vec![4u64], 0u32, 0u64), ("blocks", vec![32, 2], 3, 32)]
    {
        text(&mut out, name);
        out.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
        out.extend(number.to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(32), 0);
    (0..4).for_each(|i| out.extend((i as f32).to_le_bytes()));
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend([7; 40]);
    out
}

fn read(bytes: Vec<u8>) -> Result<WeightFile, WeightsError> {
    read_gguf(&Bytes::from(bytes), Path::new("a.gguf"))
}

/// The file with a part of it replaced, the first time that it occurs.
fn with(old: &[u8], new: &[u8]) -> Vec<u8> {
    let bytes = sound();
    let at = bytes.windows(old.len()).position(|w| w == old).expect("it occurs");
    [&bytes[..at], new, &bytes[at + old.len()..]].concat()
}

#[test]
fn what_a_file_holds_is_read() {
    let file = read(sound()).unwrap();
    assert_eq!((file.format, file.architectures.as_slice()), ("gguf", &["small".to_string()][..]));
    assert_eq!(file.metadata["small.eps"], Metadata::Float(0.5));
    assert_eq!(file.metadata["small.words"], Metadata::Texts(vec!["a".into(), "bc".into()]));
    let blocks = &file.tensors["blocks"];
    assert_eq!((blocks.kind, blocks.shape.as_slice()), (StoredKind::Number(3), &[2, 32][..]));
    assert_eq!(&*blocks.bytes("blocks", Some(40)).unwrap(), [7; 40]);
    let scale = &file.tensors["scale"];
    let bytes = scale.bytes("scale", Some(16)).unwrap();
    assert_eq!(&bytes[4..8], 1f32.to_le_bytes());
    assert_eq!(scale.range().offset % 32, 0);
}

#[test]
fn damage_is_told_with_its_place() {
    let cases: &[(Vec<u8>, &str)] = &[
        (b"GGML".to_vec(), "byte 4: it does not begin with `GGUF`"),
        (b"GG".to_vec(), "byte 0: the first bytes takes 4 bytes, and the file has 2 more"),
        (with(&3u32.to_le_bytes(), &1u32.to_le_bytes()), "byte 8: version 1 is not known"),
        (with(&3u32.to_le_bytes(), &3u32.to_be_bytes()), "byte 8: the file is big-endian"),
        (
            with(b"general.architecture", b"general.architecturE"),
            "key `general.architecture`: the file does not say",
        ),
        (with(b"small.words", b"small.eps\0\0"), "small.eps"),
        (
            with(&6u32.to_le_bytes(), &99u32.to_le_bytes()),
            "the value of `small.eps` has the unknown type 99",
        ),
        (with(b"small.eps", b"small.ep\xff"), "is not UTF-8"),
        (with(b"blocks", b"scale\0"), ""),
        (with(&[9, 0, 0, 0, 8, 0, 0, 0], &[9, 0, 0, 0, 9, 0, 0, 0]), "is a list of lists"),
        (sound()[..60].to_vec(), "and the file has"),
    ];
    for (bytes, told) in cases {
        match read(bytes.clone()) {
            Ok(_) => assert!(told.is_empty() || *told == "small.eps", "no error: {told}"),
            Err(e) => {
                let message = e.to_string();
                assert!(message.starts_with("a.gguf: ") && message.contains(told), "{message}");
                assert!(!e.advice().is_empty(), "{message}");
            }
        }
    }
}

#[test]
fn a_tensor_past_the_end_is_named() {
    let cut = sound();
    let file = read(cut[..cut.len() - 8].to_vec()).unwrap();
    let e = file.tensors["blocks"].bytes("blocks", Some(40)).unwrap_err();
    assert!(e.to_string().contains("tensor `blocks`: it needs 40 bytes"), "{e}");
    let far = with(&[3, 0, 0, 0, 32, 0, 0, 0], &[3, 0, 0, 0, 255, 255, 0, 0]);
    let e = read(far).unwrap_err().to_string();
    assert!(e.contains("tensor `blocks`: it begins 65535 bytes behind"), "{e}");
}

#[test]
fn no_change_of_a_byte_makes_the_reader_panic() {
    let bytes = sound();
    for at in 0..bytes.len() {
        for value in [0, 1, 9, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            if let Ok(file) = read(changed) {
                for (name, t) in &file.tensors {
                    let count = t.shape.iter().try_fold(4usize, |n, d| n.checked_mul(*d));
                    let _ = t.bytes(name, count);
                }
            }
        }
        let _ = read(bytes[..at].to_vec());
    }
}

/// A folder with a description and, under a name, bytes of safetensors.
fn folder(config: &str, files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

const CONFIG: &str = r#"{"architectures": ["Small"], "size": 4, "scaling": {"factor": 2.5, "old": null}, "flags": [true, 1]}"#;
const HEADER: &str = r#"{"w":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}}"#;

#[test]
fn a_folder_is_read() {
    let dir = folder(CONFIG, &[("model.safetensors", safetensors(HEADER, &[1, 2, 3, 4]))]);
    let file = read_folder(dir.path()).unwrap();
    assert_eq!(
        (file.format, file.architectures.as_slice()),
        ("safetensors", &["Small".to_string()][..])
    );
    assert_eq!(file.metadata["size"], Metadata::Int(4));
    assert_eq!(file.metadata["scaling.factor"], Metadata::Float(2.5));
    assert!(!file.metadata.contains_key("scaling.old"));
    let w = &file.tensors["w"];
    assert_eq!(w.shape, [2, 1]);
    assert_eq!(&*w.bytes("w", Some(4)).unwrap(), [1, 2, 3, 4]);
}

#[test]
fn an_index_names_the_files_that_are_read() {
    let index = r#"{"weight_map": {"w": "a.safetensors"}}"#;
    let one = safetensors(HEADER, &[1, 2, 3, 4]);
    let name = "model.safetensors.index.json";
    let files = [(name, index.into()), ("a.safetensors", one.clone()), ("b.safetensors", one)];
    let dir = folder(CONFIG, &files);
    assert_eq!(read_folder(dir.path()).unwrap().tensors.len(), 1);
    std::fs::write(dir.path().join(name), index.replace("a.safe", "../a.safe")).unwrap();
    let e = read_folder(dir.path()).unwrap_err().to_string();
    assert!(e.contains("tensor `w`: `../a.safetensors` is no name of a file in the folder"), "{e}");
}

#[test]
fn a_damaged_folder_is_told_with_its_place() {
    let sound = safetensors(HEADER, &[1, 2, 3, 4]);
    let model = "model.safetensors";
    let cases = [
        (folder("{", &[(model, sound.clone())]), "config.json: line 1, column 1: it is not JSON"),
        (folder("{}", &[(model, sound.clone())]), "neither `architectures` nor `model_type`"),
        (folder(CONFIG, &[]), "it has no `*.safetensors`"),
        (folder(CONFIG, &[(model, sound[..20].to_vec())]), "the header: it is damaged"),
        (
            folder(CONFIG, &[(model, sound[..sound.len() - 1].to_vec())]),
            "the header: it is damaged",
        ),
        (
            folder(CONFIG, &[(model, sound.clone()), ("b.safetensors", sound.clone())]),
            "tensor `w`: another file of the folder has it, too",
        ),
    ];
    for (dir, told) in cases {
        let e = read_folder(dir.path()).unwrap_err();
        assert!(e.to_string().contains(told), "{e}");
        assert!(!e.advice().is_empty());
    }
}

#[test]
fn no_change_of_a_byte_of_a_header_makes_the_reader_panic() {
    let sound = safetensors(HEADER, &[1, 2, 3, 4]);
    let dir = folder(CONFIG, &[]);
    for at in 0..sound.len() {
        for value in [0, b'9', b'"', 0xff] {
            let mut changed = sound.clone();
            changed[at] = value;
            std::fs::write(dir.path().join("model.safetensors"), changed).unwrap();
            let _ = read_folder(dir.path());
        }
    }
}
