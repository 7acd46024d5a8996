//! The opener of `citizen://NAME`, the content of a file: of the path NAME, or of the file NAME in
//! the folder of the option `folder`. `citizen://fail` fails, and `citizen://panic` panics.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crossdock_plugin_api::{ByteSource, Call, Error, Opener, Options, Result};

use crate::{BadCitizen, panic_if};

impl Opener for BadCitizen {
    fn schemes(&self) -> &[&'static str] {
        &["citizen"]
    }

    fn open(&self, call: &Call<'_>, uri: &str, options: &Options) -> Result<Arc<dyn ByteSource>> {
        call.check_cancelled()?;
        options.only("citizen://", &["folder"])?;
        let name = uri.split_once("://").map_or(uri, |(_, name)| name);
        panic_if(name, "panic");
        if name == "fail" {
            return Err(Error::io("injected failure"));
        }
        // An absolute path replaces the folder.
        let path = Path::new(options.get("folder").unwrap_or_default()).join(name);
        let bytes = std::fs::read(path).map_err(|error| Error::io(error.to_string()))?;
        Ok(Arc::new(Content { uri: uri.to_owned(), bytes }))
    }
}

struct Content {
    uri: String,
    bytes: Vec<u8>,
}

impl ByteSource for Content {
    fn name(&self) -> &str {
        &self.uri
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..));
        rest.unwrap_or_default().read(to).map_err(|error| Error::io(error.to_string()))
    }
}
