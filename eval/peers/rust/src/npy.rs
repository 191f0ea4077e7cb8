//! The few kinds of .npy arrays that a collection consists of.

use half::f16;
use ndarray::{s, Array2, Array3};
use std::path::Path;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Raw {
    bytes: Vec<u8>,
    start: usize,
    descr: String,
    shape: Vec<usize>,
}

fn field<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let rest = &header[header.find(key)? + key.len()..];
    Some(rest[rest.find(':')? + 1..].trim_start())
}

fn read(path: &Path) -> Result<Raw> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let bad = || format!("{}: not an .npy file of C order", path.display());
    if bytes.len() < 12 || &bytes[..6] != b"\x93NUMPY" {
        return Err(bad().into());
    }
    let (at, len) = match bytes[6] {
        1 => (10, u16::from_le_bytes([bytes[8], bytes[9]]) as usize),
        _ => (12, u32::from_le_bytes(bytes[8..12].try_into()?) as usize),
    };
    let start = at + len;
    let header = std::str::from_utf8(bytes.get(at..start).ok_or_else(bad)?)?;
    if !field(header, "'fortran_order'").is_some_and(|f| f.starts_with("False")) {
        return Err(bad().into());
    }
    let descr = field(header, "'descr'").and_then(|d| d.split('\'').nth(1)).ok_or_else(bad)?.to_string();
    let shape = field(header, "'shape'").and_then(|d| d.split(['(', ')']).nth(1)).ok_or_else(bad)?;
    let shape = shape.split(',').filter(|x| !x.trim().is_empty()).map(|x| x.trim().parse()).collect::<std::result::Result<_, _>>()?;
    Ok(Raw { bytes, start, descr, shape })
}

fn floats(raw: &Raw) -> Result<Vec<f32>> {
    let data = &raw.bytes[raw.start..];
    Ok(match raw.descr.as_str() {
        "<f2" => data.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        "<f4" => data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
        d => return Err(format!("no vectors of type {d}").into()),
    })
}

fn integers(raw: &Raw) -> Result<Vec<usize>> {
    let data = &raw.bytes[raw.start..];
    Ok(match raw.descr.as_str() {
        "<i4" => data.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap()) as usize).collect(),
        "<i8" => data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as usize).collect(),
        d => return Err(format!("no lengths of type {d}").into()),
    })
}

/// All token vectors, [tokens, dim].
pub fn tokens(dir: &Path) -> Result<Array2<f32>> {
    let raw = read(&dir.join("docs.npy"))?;
    Ok(Array2::from_shape_vec((raw.shape[0], raw.shape[1]), floats(&raw)?)?)
}

/// One matrix a document.
pub fn documents(dir: &Path) -> Result<Vec<Array2<f32>>> {
    split(tokens(dir)?, &dir.join("doclens.npy"))
}

fn split(all: Array2<f32>, lengths: &Path) -> Result<Vec<Array2<f32>>> {
    let mut at = 0;
    Ok(integers(&read(lengths)?)?
        .into_iter()
        .map(|n| {
            at += n;
            all.slice(s![at - n..at, ..]).to_owned()
        })
        .collect())
}

/// One matrix a query: [queries, tokens, dim], or [tokens, dim] with querylens.npy.
pub fn queries(dir: &Path) -> Result<Vec<Array2<f32>>> {
    let raw = read(&dir.join("queries.npy"))?;
    if raw.shape.len() == 2 {
        let all = Array2::from_shape_vec((raw.shape[0], raw.shape[1]), floats(&raw)?)?;
        return split(all, &dir.join("querylens.npy"));
    }
    let q = Array3::from_shape_vec((raw.shape[0], raw.shape[1], raw.shape[2]), floats(&raw)?)?;
    Ok(q.outer_iter().map(|m| m.to_owned()).collect())
}
