//! Reads the structure of npy and npz files.

use arrow_schema::Metadata;
use crossdock_memory::{Error, Result, StoredSource};
use crossdock_plugin_api::Call;

use crate::npy::{Header, MAX_PREFIX_BYTES, parse, text_range};
use crate::tensor::{Data, File, Tensor};
use crate::zip::{self, Inflater, Member};

/// The extension of the members of an npz file.
pub const EXTENSION: &str = ".npy";

/// Reads the structure of an npy file. Its only column has the name `name`.
pub fn read_npy(file: &StoredSource, name: &str) -> Result<File> {
    let tensor = stored(file, 0, file.len(), None, name)?;
    File::new(vec![tensor], Metadata::new())
}

/// Reads the structure of an npz file. The columns have the order of the archive's directory.
pub fn read_npz(call: &Call<'_>, file: &StoredSource) -> Result<File> {
    let tensors = zip::read(file)?.into_iter().map(|entry| {
        call.check_cancelled()?;
        let Some(name) = entry.name.strip_suffix(EXTENSION) else {
            let why = format!(
                "a member of the archive that is not an array, expected a name that ends in {EXTENSION}"
            );
            return Ok(Tensor { name: entry.name, column: Err(why) });
        };
        let tensor = match entry.member {
            Err(why) => Ok(Tensor { name: name.to_owned(), column: Err(why) }),
            Ok(member) if member.is_deflated => deflated(call, file, member, name),
            Ok(member) => stored(file, member.offset, member.bytes, Some(member), name),
        };
        tensor.map_err(|error| error.context(format_args!("tensor '{name}'")))
    });
    File::new(tensors.collect::<Result<Vec<_>>>()?, Metadata::new())
}

/// Reads the header of an array in `bytes` bytes of a file.
fn stored(file: &StoredSource, begin: u64, bytes: u64, member: Option<Member>, name: &str) -> Result<Tensor> {
    let mut at = begin;
    let (header, skip) = read_header(bytes, |to| {
        file.read_unmapped(at, to)?;
        at += to.len() as u64;
        Ok(())
    })
    .map_err(|error| error.or_offset(begin))?;
    tensor(header, bytes - skip, name, Data::Plain { offset: begin + skip, member })
}

fn deflated(call: &Call<'_>, file: &StoredSource, member: Member, name: &str) -> Result<Tensor> {
    let mut inflater = Inflater::new(&member);
    let (header, skip) = read_header(member.bytes, |to| inflater.read(&|| call.check_cancelled(), file, to))
        .map_err(|error| error.or_offset(member.offset))?;
    tensor(header, member.bytes - skip, name, Data::Deflated { member, skip })
}

/// Reads the header of an array that has `bytes` bytes with its header. `next` reads the next
/// bytes. Returns the header, and the number of bytes before the elements.
fn read_header(bytes: u64, mut next: impl FnMut(&mut [u8]) -> Result<()>) -> Result<(Header, u64)> {
    let mut prefix = vec![0; bytes.min(MAX_PREFIX_BYTES as u64) as usize];
    next(&mut prefix)?;
    let text = text_range(&prefix)?;
    if text.end as u64 > bytes {
        return Err(Error::bad_data(format!(
            "the array has only {bytes} bytes, expected a header up to byte {}: it is truncated",
            text.end
        )));
    }
    let n_before = prefix.len();
    prefix.resize(text.end.max(n_before), 0);
    next(prefix.get_mut(n_before..).unwrap_or_default())?;
    let header = parse(prefix.get(text.clone()).unwrap_or_default())?;
    Ok((header, text.end as u64))
}

/// `bytes` is the number of bytes after the header.
fn tensor(header: Header, bytes: u64, name: &str, data: Data) -> Result<Tensor> {
    let (element, is_big_endian, shape) = match header.check()? {
        Ok(checked) => checked,
        Err(why) => return Ok(Tensor { name: name.to_owned(), column: Err(why) }),
    };
    if shape.bytes() == bytes {
        return Ok(Tensor::new(name, element, shape, is_big_endian, data));
    }
    let advice = match shape.bytes() < bytes {
        true => "expected one array only",
        false => "the array is truncated",
    };
    Err(Error::bad_data(format!(
        "shape {:?} has {} bytes, but {bytes} bytes follow the header: {advice}",
        shape.dims(),
        shape.bytes()
    )))
}
