//! Input files as the bytes of a model's inputs: .npy, .bin, PNG and JPEG.

use super::picture::Picture;
use super::{npy, values};
use crate::tensor::OperandType;
use crate::tflite::Port;
use crate::tool::error::ToolError;
use std::path::{Path, PathBuf};

const KINDS: &str = "give a file of kind .npy, .bin, .png or .jpg";

/// The bytes for `port` that the file at `path` holds. `resize` lets an image of any size be fitted.
pub fn read(path: &Path, port: &Port, resize: bool) -> Result<Vec<u8>, ToolError> {
    let failed = |why: String| ToolError::Usage(format!("{}: {why}", path.display()));
    let bytes = std::fs::read(path).map_err(|why| failed(format!("{why}; {KINDS}")))?;
    match extension(path).as_str() {
        "npy" => array(&bytes, port),
        "bin" => raw(bytes, port),
        "png" | "jpg" | "jpeg" => picture(&bytes, port, resize),
        _ => Err(KINDS.into()),
    }
    .map_err(failed)
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

/// The images in a directory, sorted by name.
pub fn images_in(dir: &Path) -> Result<Vec<PathBuf>, ToolError> {
    let failed = |why| ToolError::File { path: dir.into(), why };
    let mut images = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if matches!(extension(&path).as_str(), "png" | "jpg" | "jpeg") {
            images.push(path);
        }
    }
    images.sort();
    if images.is_empty() {
        return Err(ToolError::Usage(format!(
            "{}: no PNG or JPEG image in it; give a directory of images",
            dir.display()
        )));
    }
    Ok(images)
}

fn array(bytes: &[u8], port: &Port) -> Result<Vec<u8>, String> {
    let array = npy::parse(bytes)?;
    let without_ones = |dims: &[u32]| dims.iter().copied().filter(|&d| d != 1).collect::<Vec<_>>();
    if without_ones(&array.shape) != without_ones(&port.dims) {
        return Err(format!("an array of {:?}, but the input takes {:?}", array.shape, port.dims));
    }
    let expected = npy::descr(port.info.ty);
    if expected == Some(array.descr) {
        return Ok(array.data.to_vec());
    }
    if array.descr == "<f4" && port.info.ty.is_quant8_asymm() {
        let reals = array.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        return values::encode(&port.info, reals);
    }
    Err(format!("elements are {}, but the input takes {}", array.descr, expected.unwrap_or("no array")))
}

fn raw(bytes: Vec<u8>, port: &Port) -> Result<Vec<u8>, String> {
    match port.info.byte_size() {
        Some(size) if size == bytes.len() => Ok(bytes),
        size => Err(format!(
            "{} bytes, but the input takes {} ({} {:?})",
            bytes.len(),
            size.unwrap_or(0),
            port.info.ty,
            port.dims
        )),
    }
}

/// An image as pixel / 255, quantised if the input is; grey or RGB by the number of channels. Bytes whose values are whole
/// numbers could be but 0 or 1 so: the model takes pixels as they are, signed ones less 128.
fn picture(bytes: &[u8], port: &Port, resize: bool) -> Result<Vec<u8>, String> {
    let picture = Picture::decode(bytes).map_err(|why| format!("the image cannot be read: {why}"))?;
    let (height, width, channels) = match port.dims[..] {
        [1, height, width, channels @ (1 | 3)] | [height, width, channels @ (1 | 3)] => {
            (height, width, channels)
        }
        _ => return Err(format!("an image, but the input takes {:?}; give an .npy file", port.dims)),
    };
    if port.info.ty == OperandType::TENSOR_BOOL8 || port.info.ty == OperandType::TENSOR_INT32 {
        return Err(format!("an image, but the input takes {}; give an .npy file", port.info.ty));
    }
    let picture = fitted(picture, width as usize, height as usize, resize)?;
    let pixels: Vec<u8> = match channels {
        1 => picture.greys().collect(),
        _ => picture.colours().collect(),
    };
    match port.info.ty {
        OperandType::TENSOR_QUANT8_ASYMM if port.info.scale == 1.0 => Ok(pixels),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED if port.info.scale == 1.0 => {
            Ok(pixels.into_iter().map(|pixel| pixel ^ 0x80).collect())
        }
        _ => values::encode(&port.info, pixels.into_iter().map(|pixel| f32::from(pixel) / 255.0)),
    }
}

fn fitted(picture: Picture, width: usize, height: usize, resize: bool) -> Result<Picture, String> {
    if (picture.width, picture.height) == (width, height) {
        return Ok(picture);
    }
    if !resize {
        return Err(format!(
            "the image is {}x{}, the model takes {width}x{height}; give --resize to fit it",
            picture.width, picture.height
        ));
    }
    picture
        .resized(width, height)
        .map_err(|why| format!("the image cannot be resized to {width}x{height}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::TensorInfo;

    fn port(ty: OperandType, dims: &[u32], scale: f32, zero_point: i32) -> Port {
        Port {
            name: "in".into(),
            dims: dims.into(),
            info: TensorInfo::quantised(ty, dims, scale, zero_point),
        }
    }

    fn float(dims: &[u32]) -> Port {
        port(OperandType::TENSOR_FLOAT32, dims, 0.0, 0)
    }

    /// A grey image of 2 rows by 3 columns.
    fn png() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 3, 2);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.write_header().unwrap().write_image_data(&[0, 51, 102, 153, 204, 255]).unwrap();
        bytes
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn images_become_rows_of_pixels() {
        let grey = picture(&png(), &float(&[1, 2, 3, 1]), false).unwrap();
        assert_eq!(floats(&grey), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        let rgb = picture(&png(), &float(&[1, 2, 3, 3]), false).unwrap();
        assert_eq!(floats(&rgb)[..6], [0.0, 0.0, 0.0, 0.2, 0.2, 0.2]);
        let quantised = port(OperandType::TENSOR_QUANT8_ASYMM_SIGNED, &[1, 2, 3, 1], 1.0 / 255.0, -128);
        let bytes = picture(&png(), &quantised, false).unwrap();
        assert_eq!(bytes.iter().map(|&b| b as i8).collect::<Vec<_>>(), [-128, -77, -26, 25, 76, 127]);
    }

    #[test]
    fn bytes_without_quantisation_take_pixels_as_they_are() {
        for (ty, zero_point, expected) in [
            (OperandType::TENSOR_QUANT8_ASYMM, 0, [0, 51, 102, 153, 204, 255]),
            (OperandType::TENSOR_QUANT8_ASYMM, 128, [0, 51, 102, 153, 204, 255]),
            (OperandType::TENSOR_QUANT8_ASYMM_SIGNED, -128, [128, 179, 230, 25, 76, 127]),
        ] {
            let input = port(ty, &[1, 2, 3, 1], 1.0, zero_point);
            assert_eq!(picture(&png(), &input, false).unwrap(), expected, "{ty}, {zero_point}");
        }
    }

    #[test]
    fn images_of_another_size_need_resize() {
        let why = picture(&png(), &float(&[1, 8, 8, 1]), false).unwrap_err();
        assert!(why.contains("3x2") && why.contains("8x8") && why.contains("--resize"), "{why}");
        assert_eq!(floats(&picture(&png(), &float(&[1, 8, 8, 1]), true).unwrap()).len(), 64);
        assert!(picture(&png(), &float(&[1, 10]), true).is_err());
        assert!(picture(&png()[..40], &float(&[1, 2, 3, 1]), false).is_err());
    }

    #[test]
    fn arrays_must_have_the_inputs_shape_and_type() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.npy");
        let data: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        npy::write(&path, OperandType::TENSOR_FLOAT32, &[2], &data).unwrap();
        assert_eq!(read(&path, &float(&[1, 2]), false).unwrap(), data);
        let quantised = port(OperandType::TENSOR_QUANT8_ASYMM, &[1, 2], 0.5, 10);
        assert_eq!(read(&path, &quantised, false).unwrap(), [12, 14]);
        for wrong in [float(&[3]), float(&[]), port(OperandType::TENSOR_INT32, &[2], 0.0, 0)] {
            let why = read(&path, &wrong, false).unwrap_err().to_string();
            assert!(why.contains("in.npy") && why.contains("the input takes"), "{why}");
        }
    }

    #[test]
    fn raw_files_must_have_the_inputs_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.bin");
        std::fs::write(&path, [0; 8]).unwrap();
        assert_eq!(read(&path, &float(&[1, 2]), false).unwrap(), [0; 8]);
        assert!(read(&path, &float(&[3]), false).is_err());
        assert!(read(&dir.path().join("none.bin"), &float(&[2]), false).is_err());
        assert!(images_in(dir.path()).unwrap_err().to_string().contains("no PNG or JPEG image"));
    }
}
