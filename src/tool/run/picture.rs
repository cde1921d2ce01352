//! PNG and JPEG files as pixels. Knows no model: neither its elements nor their scales.

use resize::px::RGB;
use std::io::Cursor;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Bytes of pixels that a file may decode to: a few hundred bytes of a file can claim any number.
const MOST: usize = 512 << 20;

/// Pixels, row by row.
pub struct Picture {
    pub width: usize,
    pub height: usize,
    pixels: Vec<RGB<u8>>,
}

impl Picture {
    /// The picture of a PNG or JPEG file. Transparency is left out.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes {
            [0x89, b'P', b'N', b'G', ..] => png(bytes),
            [0xff, 0xd8, ..] => jpeg(bytes),
            _ => Err("neither PNG nor JPEG".into()),
        }
    }

    /// The picture at another size: means over the pixels around, weighted by how near they are.
    pub fn resized(&self, width: usize, height: usize) -> Result<Self, String> {
        let count = width.saturating_mul(height);
        if count > MOST / 3 {
            return Err(too_large());
        }
        let mut pixels = vec![RGB::new(0, 0, 0); count];
        resize::new(self.width, self.height, width, height, resize::Pixel::RGB8, resize::Type::Triangle)
            .and_then(|mut resizer| resizer.resize(&self.pixels, &mut pixels))
            .map_err(|why| why.to_string())?;
        Ok(Self { width, height, pixels })
    }

    /// Red, green and blue of each pixel.
    pub fn colours(&self) -> impl Iterator<Item = u8> + '_ {
        self.pixels.iter().flat_map(|pixel| [pixel.r, pixel.g, pixel.b])
    }

    /// How light each pixel is, by the weights of BT.709.
    pub fn greys(&self) -> impl Iterator<Item = u8> + '_ {
        let weighted = |pixel: &RGB<u8>| {
            2126 * u32::from(pixel.r) + 7152 * u32::from(pixel.g) + 722 * u32::from(pixel.b)
        };
        self.pixels.iter().map(move |pixel| (weighted(pixel) / 10_000) as u8)
    }
}

fn png(bytes: &[u8]) -> Result<Picture, String> {
    let failed = |why: png::DecodingError| why.to_string();
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(failed)?;
    let size = reader.output_buffer_size().filter(|&size| size <= MOST).ok_or_else(too_large)?;
    let mut data = vec![0; size];
    let info = reader.next_frame(&mut data).map_err(failed)?;
    data.truncate(info.buffer_size());
    if info.bit_depth == png::BitDepth::Sixteen {
        let byte = |wide: &[u8]| {
            let sample = u32::from(u16::from_be_bytes([wide[0], wide[1]]));
            ((sample * 255 + 32_767) / 65_535) as u8
        };
        data = data.chunks_exact(2).map(byte).collect();
    }
    let pixels = data
        .chunks_exact(info.color_type.samples())
        .map(|samples| match *samples {
            [red, green, blue, ..] => RGB::new(red, green, blue),
            [grey, ..] => RGB::new(grey, grey, grey),
            [] => unreachable!("a pixel has a sample"),
        })
        .collect();
    Ok(Picture { width: info.width as usize, height: info.height as usize, pixels })
}

fn jpeg(bytes: &[u8]) -> Result<Picture, String> {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|why| why.to_string())?;
    decoder.output_buffer_size().filter(|&size| size <= MOST).ok_or_else(too_large)?;
    let data = decoder.decode().map_err(|why| why.to_string())?;
    let (width, height) = decoder.dimensions().ok_or("no size")?;
    let pixels = data.chunks_exact(3).map(|samples| RGB::new(samples[0], samples[1], samples[2])).collect();
    Ok(Picture { width, height, pixels })
}

fn too_large() -> String {
    format!("its pixels take more than {} MiB", MOST >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PNG file of 2 rows by 3 columns.
    fn png_of(colour: png::ColorType, depth: png::BitDepth, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 3, 2);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
    }

    /// A JPEG file of 8 by 8 pixels, without colours, all of this one grey: 128 and an eighth of 16 times 40.
    const GREY: u8 = 208;

    fn jpeg_file() -> Vec<u8> {
        let mut bytes = vec![0xff, 0xd8];
        let mut segment = |marker: u8, body: &[u8]| {
            bytes.extend([0xff, marker]);
            bytes.extend((body.len() as u16 + 2).to_be_bytes());
            bytes.extend(body);
        };
        // Steps of 16 for all coefficients.
        segment(0xdb, &[&[0][..], &[16; 64]].concat());
        // 8 bits, 8 by 8, one component.
        segment(0xc0, &[8, 0, 8, 0, 8, 1, 1, 0x11, 0]);
        // Each table has one code, of one bit: six bits of a mean follow, and the end of a block.
        let one_code = |class: u8, symbol: u8| [&[class, 1][..], &[0; 15], &[symbol]].concat();
        segment(0xc4, &one_code(0x00, 6));
        segment(0xc4, &one_code(0x10, 0));
        segment(0xda, &[1, 1, 0, 0, 63, 0]);
        // A code of one bit, 40 in six, and a code of one.
        bytes.push(40 << 1);
        bytes.extend([0xff, 0xd9]);
        bytes
    }

    #[test]
    fn png_files_of_all_colours_are_read() {
        use png::{BitDepth::*, ColorType::*};
        let six = [0, 51, 102, 153, 204, 255];
        let expanded: Vec<u8> = six.iter().flat_map(|&x| [x; 3]).collect();
        let colours = |bytes: &[u8]| Picture::decode(bytes).unwrap().colours().collect::<Vec<_>>();
        assert_eq!(colours(&png_of(Grayscale, Eight, &six)), expanded);
        let with_alpha: Vec<u8> = six.iter().flat_map(|&x| [x, 7]).collect();
        assert_eq!(colours(&png_of(GrayscaleAlpha, Eight, &with_alpha)), expanded);
        // 128 more than a multiple of 257 is not half of the way to the next one.
        let wide: Vec<u8> =
            six.iter().flat_map(|&x| (u16::from(x) * 257).saturating_add(128).to_be_bytes()).collect();
        assert_eq!(colours(&png_of(Grayscale, Sixteen, &wide)), expanded);
        let pixels: Vec<u8> = (0..18).collect();
        assert_eq!(colours(&png_of(Rgb, Eight, &pixels)), pixels);
        let with_alpha: Vec<u8> = pixels.chunks(3).flat_map(|p| [p[0], p[1], p[2], 9]).collect();
        assert_eq!(colours(&png_of(Rgba, Eight, &with_alpha)), pixels);
    }

    #[test]
    fn greys_weigh_colours() {
        let bytes = png_of(
            png::ColorType::Rgb,
            png::BitDepth::Eight,
            &[255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 10, 10, 10, 0, 0, 0],
        );
        let greys: Vec<_> = Picture::decode(&bytes).unwrap().greys().collect();
        assert_eq!(greys, [54, 182, 18, 255, 10, 0]);
    }

    #[test]
    fn jpeg_files_are_read() {
        let picture = Picture::decode(&jpeg_file()).unwrap();
        assert_eq!((picture.width, picture.height), (8, 8));
        assert_eq!(picture.greys().collect::<Vec<_>>(), [GREY; 64]);
        let resized = picture.resized(3, 5).unwrap();
        assert_eq!(resized.colours().collect::<Vec<_>>(), [GREY; 45]);
        for (width, height) in [(0, 5), (3, 0), (usize::MAX, 2), (1 << 20, 1 << 20)] {
            assert!(picture.resized(width, height).is_err());
        }
    }

    #[test]
    fn other_files_are_errors() {
        let why = |bytes: &[u8]| Picture::decode(bytes).map(|_| ()).unwrap_err();
        assert!(why(b"GIF89a").contains("neither PNG nor JPEG"));
        assert!(why(&[]).contains("neither"));
        let png = png_of(png::ColorType::Grayscale, png::BitDepth::Eight, &[0; 6]);
        for end in 4..png.len() - 12 {
            assert!(Picture::decode(&png[..end]).is_err(), "{end}");
        }
        for end in 2..20 {
            assert!(Picture::decode(&jpeg_file()[..end]).is_err(), "{end}");
        }
        // A header that claims the most, of a file that has nothing.
        let mut huge = png;
        huge[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
        assert!(Picture::decode(&huge).is_err());
    }
}
