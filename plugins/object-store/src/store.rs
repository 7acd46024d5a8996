//! Finds the store and the path of a URI.

use std::str::FromStr;
use std::sync::Arc;

use crossdock_plugin_api::{Error, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore};
use url::Url;

use crate::error::text_of;
use crate::settings::Settings;

/// A store and the path of an object.
pub struct Location {
    /// The URI for messages, without secrets.
    pub uri: String,
    pub store: Arc<dyn ObjectStore>,
    pub path: Path,
}

/// # Errors
/// "Invalid argument" if the URI is malformed, or if the store has no such option.
pub fn locate(uri: &str, settings: &Settings) -> Result<Location> {
    let wrong = |why: &str| Error::invalid_argument(format!("'{}': {why}", shown(uri)));
    let url = Url::parse(uri).map_err(|error| wrong(&format!("not a URI: {error}")))?;
    let is_http = matches!(url.scheme(), "http" | "https");
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong(if is_http { "expected a server" } else { "expected a bucket or a container" }));
    }
    if url.password().is_some() || (is_http && !url.username().is_empty()) {
        return Err(wrong("a URI with a user name or a password is not supported"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("expected no query and no fragment: encode '?' as %3F and '#' as %23"));
    }
    let path = Path::from_url_path(url.path()).map_err(|error| wrong(&text_of(&error)))?;
    if path.as_ref().is_empty() {
        return Err(wrong("expected the name of an object"));
    }
    let built = match url.scheme() {
        "s3" | "s3a" => s3(&url, settings),
        "gs" => google(&url, settings),
        "http" | "https" => http(&url, settings),
        _ => azure(&url, settings),
    };
    let store =
        built.map_err(|error| Error::invalid_argument(format!("'{}': {}", shown(uri), error.message())))?;
    Ok(Location { uri: shown(uri), store, path })
}

/// The URI without a user name, a password and a query.
fn shown(uri: &str) -> String {
    let uri = uri.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    match authority.rsplit_once('@') {
        // The container of an Azure URI is in the place of a user name.
        Some((user, place)) if !user.contains(':') && scheme.starts_with("abfs") => {
            format!("{scheme}://{user}@{place}{path}")
        }
        Some((_, place)) => format!("{scheme}://{place}{path}"),
        None => uri.to_owned(),
    }
}

/// Parses the names of the options, so that no option is ignored.
fn options<K: FromStr>(settings: &Settings, store: &str) -> Result<Vec<(K, String)>> {
    let parse = |(key, value): &(String, String)| {
        let known = K::from_str(&key.to_ascii_lowercase()).map_err(|_| {
            Error::invalid_argument(format!(
                "{store} has no option '{key}'; expected one of {}, or an option of the crate object_store for {store}",
                Settings::own_names()
            ))
        })?;
        Ok((known, value.clone()))
    };
    settings.store.iter().map(parse).collect()
}

/// The settings of all clients, which come before the caller's options.
fn client(settings: &Settings) -> [(ClientConfigKey, String); 2] {
    let text = |time: std::time::Duration| format!("{}ms", time.as_millis().max(1));
    [
        (ClientConfigKey::Timeout, text(settings.timeout)),
        (ClientConfigKey::ConnectTimeout, text(settings.connect_timeout)),
    ]
}

fn invalid(error: object_store::Error) -> Error {
    Error::invalid_argument(text_of(&error))
}

fn s3(url: &Url, settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env().with_url(url.as_str()).with_retry(settings.retry());
    for (key, value) in client(settings) {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    for (key, value) in options(settings, "S3")? {
        builder = builder.with_config(key, value);
    }
    Ok(Arc::new(builder.build().map_err(invalid)?))
}

fn google(url: &Url, settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    let mut builder =
        GoogleCloudStorageBuilder::from_env().with_url(url.as_str()).with_retry(settings.retry());
    for (key, value) in client(settings) {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    for (key, value) in options(settings, "Google Cloud Storage")? {
        builder = builder.with_config(key, value);
    }
    Ok(Arc::new(builder.build().map_err(invalid)?))
}

fn azure(url: &Url, settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str()).with_retry(settings.retry());
    for (key, value) in client(settings) {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    for (key, value) in options(settings, "Azure")? {
        builder = builder.with_config(key, value);
    }
    Ok(Arc::new(builder.build().map_err(invalid)?))
}

fn http(url: &Url, settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    let origin = url.origin().ascii_serialization();
    let mut builder = HttpBuilder::new().with_url(origin).with_retry(settings.retry());
    for (key, value) in client(settings) {
        builder = builder.with_config(key, value);
    }
    // The scheme of the URI is the caller's decision.
    let allow_http = (url.scheme() == "http").then(|| (ClientConfigKey::AllowHttp, "true".to_owned()));
    for (key, value) in allow_http.into_iter().chain(options(settings, "HTTP")?) {
        builder = builder.with_config(key, value);
    }
    Ok(Arc::new(builder.build().map_err(invalid)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crossdock_plugin_api::Options;

    use super::*;

    fn without_options() -> Settings {
        Settings::new(&Options::new()).unwrap()
    }

    fn error(uri: &str, options: Options) -> String {
        locate(uri, &Settings::new(&options).unwrap()).map(|_| ()).unwrap_err().message().to_owned()
    }

    #[test]
    fn path_is_the_decoded_path_of_the_uri() {
        for (uri, path) in [
            ("s3://bucket/a/b%20c", "a/b c"),
            ("http://127.0.0.1:1/a/b.arrow", "a/b.arrow"),
            ("gs://bucket/a", "a"),
        ] {
            assert_eq!(locate(uri, &without_options()).unwrap().path.as_ref(), path);
        }
    }

    #[test]
    fn malformed_uris_are_rejected_without_their_secrets() {
        for (uri, expected) in [
            ("http://", "'http://': not a URI: empty host"),
            ("s3://", "'s3://': expected a bucket or a container"),
            ("s3:///a", "'s3:///a': expected a bucket or a container"),
            ("https://h", "'https://h': expected the name of an object"),
            ("https://u:secret@h/a", "'https://h/a': a URI with a user name or a password is not supported"),
            (
                "https://h/a?secret",
                "'https://h/a': expected no query and no fragment: encode '?' as %3F and '#' as %23",
            ),
            ("http://[::1/a", "'http://[::1/a': not a URI: invalid IPv6 address"),
        ] {
            assert_eq!(error(uri, Options::new()), expected);
        }
    }

    #[test]
    fn unknown_options_are_rejected() {
        let unknown = Options::new().with("regoin", "x");
        for uri in ["s3://b/a", "gs://b/a", "http://h/a", "abfs://c@account.dfs.core.windows.net/a"] {
            let message = error(uri, unknown.clone());
            assert!(message.contains("has no option 'regoin'; expected one of timeout, "), "{message}");
        }
        let known = Options::new().with("AWS_REGION", "x").with("endpoint", "http://h");
        assert!(locate("s3://b/a", &Settings::new(&known).unwrap()).is_ok());
    }
}
