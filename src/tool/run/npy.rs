//! Arrays in NumPy's .npy files: a magic, a version, a header in Python's syntax, and the elements.

use crate::tensor::OperandType;
use std::io::{self, Write};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The header is padded so that the elements start at a multiple of this.
const ALIGNMENT: usize = 64;

/// An array as it lies in a file.
#[derive(Debug, PartialEq)]
pub struct Array<'a> {
    /// NumPy's name for the type of the elements, such as `<f4`.
    pub descr: &'a str,
    pub shape: Vec<u32>,
    /// Elements, row-major.
    pub data: &'a [u8],
}

/// NumPy's name for the elements of tensors of type `ty`.
pub fn descr(ty: OperandType) -> Option<&'static str> {
    use OperandType::*;
    match ty {
        TENSOR_FLOAT32 | FLOAT32 => Some("<f4"),
        TENSOR_FLOAT16 | FLOAT16 => Some("<f2"),
        TENSOR_INT32 | INT32 => Some("<i4"),
        UINT32 => Some("<u4"),
        TENSOR_QUANT8_ASYMM => Some("|u1"),
        TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM | TENSOR_QUANT8_SYMM_PER_CHANNEL => Some("|i1"),
        TENSOR_QUANT16_SYMM => Some("<i2"),
        TENSOR_QUANT16_ASYMM => Some("<u2"),
        TENSOR_BOOL8 | BOOL => Some("|b1"),
        _ => None,
    }
}

/// Reads a file's bytes; the error says what is wrong with them.
pub fn parse(bytes: &[u8]) -> Result<Array<'_>, String> {
    let cut = "the file is cut off";
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not start as an .npy file")?;
    let (start, length): (usize, usize) = match *rest {
        [1, _, a, b, ..] => (4, usize::from(u16::from_le_bytes([a, b]))),
        [2 | 3, _, a, b, c, d, ..] => (6, u32::from_le_bytes([a, b, c, d]) as usize),
        [1..=3, ..] | [] => return Err(cut.into()),
        [version, ..] => return Err(format!("version {version} of .npy files is not known")),
    };
    let end = start.checked_add(length).ok_or(cut)?;
    let header =
        std::str::from_utf8(rest.get(start..end).ok_or(cut)?).map_err(|_| "its header is not text")?;
    let data = &rest[end..];
    if value(header, "fortran_order")?.starts_with("True") {
        return Err("it is in Fortran's order; save numpy.ascontiguousarray of it".into());
    }
    let descr = value(header, "descr")?;
    let descr = descr.split(['\'', '"']).nth(1).ok_or("its header gives no type of elements")?;
    let shape = value(header, "shape")?.strip_prefix('(').and_then(|rest| rest.split(')').next());
    let shape = shape
        .ok_or("its header gives no shape")?
        .split(',')
        .map(str::trim)
        .filter(|dim| !dim.is_empty())
        .map(|dim| dim.parse::<u32>().map_err(|_| format!("\"{dim}\" is not a dimension")))
        .collect::<Result<Vec<_>, _>>()?;
    let size =
        descr.get(2..).and_then(|size| size.parse::<usize>().ok()).ok_or("its type is not supported")?;
    match crate::tensor::element_count(&shape).and_then(|count| count.checked_mul(size)) {
        Some(expected) if expected == data.len() => Ok(Array { descr, shape, data }),
        _ => Err(format!("{} bytes for {shape:?} of {descr}", data.len())),
    }
}

/// The text after `'key':` in a header.
fn value<'h>(header: &'h str, key: &str) -> Result<&'h str, String> {
    let quoted = |quote: char| header.split_once(&format!("{quote}{key}{quote}"));
    let (_, rest) = quoted('\'').or_else(|| quoted('"')).ok_or_else(|| format!("its header has no {key}"))?;
    rest.trim_start().strip_prefix(':').map(str::trim_start).ok_or_else(|| format!("its {key} has no value"))
}

/// Writes `data` as an array of `shape`; scalars have none.
pub fn write(path: &Path, ty: OperandType, shape: &[u32], data: &[u8]) -> io::Result<()> {
    let descr = descr(ty).ok_or_else(|| io::Error::other(format!("NumPy has no type for {ty}")))?;
    // A tuple of one needs its comma.
    let shape: String = shape.iter().map(|d| format!("{d}, ")).collect();
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let start = MAGIC.len() + 4;
    let length = (start + header.len() + 1).next_multiple_of(ALIGNMENT) - start;
    header.extend(std::iter::repeat_n(' ', length - header.len() - 1));
    header.push('\n');
    let length = u16::try_from(length).map_err(io::Error::other)?;
    let mut file = std::fs::File::create(path)?;
    let parts = [MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes(), data];
    let written = parts.iter().try_for_each(|part| file.write_all(part));
    // Half a file is none. What kept it from being written is told, whether that can be removed or not.
    written.inspect_err(|_| drop(std::fs::remove_file(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        for shape in [&[][..], &[2], &[1, 2, 1]] {
            let data = vec![3u8; 4 * shape.iter().product::<u32>() as usize];
            write(&path, OperandType::TENSOR_FLOAT32, shape, &data).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!((bytes.len() - data.len()) % ALIGNMENT, 0);
            assert_eq!(parse(&bytes).unwrap(), Array { descr: "<f4", shape: shape.to_vec(), data: &data });
            for len in 0..bytes.len() {
                let why = parse(&bytes[..len]).expect_err("cut");
                assert!(!why.contains("not known"), "cut to {len} bytes: {why}");
            }
        }
    }

    #[test]
    fn what_cannot_be_written_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        // As a full disk does, this takes names and no bytes.
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        assert!(write(&path, OperandType::TENSOR_BOOL8, &[1], &[1]).is_err());
        assert!(path.symlink_metadata().is_err());
    }

    /// A file as NumPy 2 writes it, and the same with a header of version 2.
    #[test]
    fn files_of_numpy_are_read() {
        let header = "{'descr': '|i1', 'fortran_order': False, 'shape': (3,), }\n";
        let data = [1u8, 2, 0xff];
        let mut bytes =
            [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &data].concat();
        assert_eq!(parse(&bytes).unwrap(), Array { descr: "|i1", shape: vec![3], data: &data });
        bytes = [MAGIC, &[2, 0], &(header.len() as u32).to_le_bytes(), header.as_bytes(), &data].concat();
        assert_eq!(parse(&bytes).unwrap().shape, [3]);
        let fortran = header.replace("False", "True ");
        bytes = [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), fortran.as_bytes(), &data].concat();
        assert!(parse(&bytes).unwrap_err().contains("Fortran"));
    }

    #[test]
    fn hostile_headers_are_refused() {
        for header in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967295, 4294967295), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '<é', 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '<f99999999999999999999', 'fortran_order': False, 'shape': (1,), }",
            "{'shape': (1,), 'fortran_order': False}",
            "{'descr' '<f4', 'fortran_order': False, 'shape'",
            "",
        ] {
            let bytes =
                [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &[0; 4]].concat();
            assert!(parse(&bytes).is_err(), "{header}");
        }
    }
}
