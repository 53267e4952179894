//! HTTP/1.1 over TLS, written by hand, so that a test can also write it badly.
//!
//! Blocking, one connection, no retries, no redirects: what the server said is what the test sees.

use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::Value;

use crate::{node::Node, patience::TOO_LONG, server::Server};

/// Whom to trust and who to be.
#[derive(Clone)]
pub struct Credentials {
    config: Arc<ClientConfig>,
    token: Option<String>,
}

impl Credentials {
    /// The first cluster and the first user of a kubeconfig, which must have a certificate.
    pub fn from_kubeconfig(path: &Path) -> Credentials {
        let kubeconfig: Value = serde_yaml_ng::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let user = &kubeconfig["users"][0]["user"];
        let config = trusting(&kubeconfig)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(&decoded(&user["client-certificate-data"])).unwrap()],
                PrivateKeyDer::from_pem_slice(&decoded(&user["client-key-data"])).unwrap(),
            )
            .unwrap();
        Credentials { config: Arc::new(config), token: None }
    }

    /// Trusts the node and is nobody.
    pub fn anonymous(node: &Node) -> Credentials {
        let text = fs::read_to_string(node.admin_kubeconfig()).unwrap();
        let config = trusting(&serde_yaml_ng::from_str(&text).unwrap()).with_no_client_auth();
        Credentials { config: Arc::new(config), token: None }
    }

    pub fn with_token(mut self, token: &str) -> Credentials {
        self.token = Some(token.to_owned());
        self
    }

    /// Whom to trust and who to be, for who speaks TLS by other means.
    pub fn tls(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    pub fn connect(&self, server: &impl Server) -> Connection {
        self.connect_to(server.address()).unwrap()
    }

    pub fn connect_to(&self, address: &str) -> io::Result<Connection> {
        let host = ServerName::try_from(address.rsplit_once(':').unwrap().0.to_owned()).unwrap();
        let tls = ClientConnection::new(self.config.clone(), host).unwrap();
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TOO_LONG))?;
        let stream = StreamOwned::new(tls, socket);
        Ok(Connection { stream, token: self.token.clone(), unread: Vec::new() })
    }
}

fn trusting(kubeconfig: &Value) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = RootCertStore::empty();
    let authority = decoded(&kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]);
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
}

fn decoded(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

/// One connection to the server.
pub struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    token: Option<String>,
    unread: Vec<u8>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("{why}: {}", self.text()))
    }

    /// Code, reason and message of a `Status`.
    #[track_caller]
    pub fn refusal(&self) -> (u16, String, String) {
        let status = self.json();
        assert_eq!((&status["kind"], &status["status"]), (&"Status".into(), &"Failure".into()), "{status}");
        assert_eq!(status["code"], self.code, "{status}");
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        (self.code, text("reason"), text("message"))
    }

    /// The object that was asked for, or a panic with the server's words.
    #[track_caller]
    pub fn object(&self) -> Value {
        assert!(self.code < 300, "{} {}", self.code, self.text());
        self.json()
    }
}

impl Connection {
    pub fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub fn delete(&mut self, path: &str) -> Answer {
        self.ask("DELETE", path, &[], b"")
    }

    pub fn post(&mut self, path: &str, object: &Value) -> Answer {
        self.ask("POST", path, &[("content-type", "application/json")], object.to_string().as_bytes())
    }

    pub fn put(&mut self, path: &str, object: &Value) -> Answer {
        self.ask("PUT", path, &[("content-type", "application/json")], object.to_string().as_bytes())
    }

    /// `kind` is `json`, `merge` or `strategic-merge`.
    pub fn patch(&mut self, path: &str, kind: &str, patch: &str) -> Answer {
        let media = format!("application/{kind}-patch+json");
        self.ask("PATCH", path, &[("content-type", &media)], patch.as_bytes())
    }

    /// Sends a request and reads the whole answer.
    pub fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.try_ask(method, path, headers, body).unwrap()
    }

    pub fn try_ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.send(method, path, headers, body)?;
        let (code, headers) = self.head()?;
        let mut answer = Answer { code, headers, body: Vec::new() };
        if answer.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk()? {
                answer.body.extend(chunk);
            }
        } else if let Some(length) = answer.header("content-length") {
            answer.body = self.take(length.parse().unwrap())?;
        }
        Ok(answer)
    }

    /// Begins a request whose answer does not end by itself.
    pub fn watch(mut self, path: &str) -> Watch {
        self.send("GET", path, &[], b"").unwrap();
        let (code, headers) = self.head().unwrap();
        if code == 200 {
            return Watch { connection: self, unread: Vec::new() };
        }
        let length =
            headers.iter().find(|(name, _)| name == "content-length").map_or("0", |(_, n)| n.as_str());
        let body = self.take(length.parse().unwrap()).unwrap();
        panic!("a watch was refused: {code} {}", String::from_utf8_lossy(&body));
    }

    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: sheaf\r\n");
        if let Some(token) = &self.token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if method != "GET" || !body.is_empty() {
            head += &format!("content-length: {}\r\n", body.len());
        }
        head += "\r\n";
        self.write(&[head.as_bytes(), body].concat())
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// How long a read may take before it fails.
    pub fn read_within(&self, limit: Duration) {
        self.stream.sock.set_read_timeout(Some(limit)).unwrap();
    }

    pub fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            self.fill()?;
        };
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).map_err(io::Error::other)?;
        let mut lines = head.split("\r\n");
        let code = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default();
        let code = code.parse().map_err(io::Error::other)?;
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Ok((code, headers))
    }

    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\r\n") {
                break end;
            }
            self.fill()?;
        };
        let line: Vec<u8> = self.unread.drain(..end + 2).collect();
        let length = String::from_utf8_lossy(&line[..end]).into_owned();
        let length = usize::from_str_radix(&length, 16).map_err(io::Error::other)?;
        let mut chunk = self.take(length + 2)?;
        chunk.truncate(length);
        Ok(if length == 0 { None } else { Some(chunk) })
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            self.fill()?;
        }
        Ok(self.unread.drain(..length).collect())
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                self.unread.extend_from_slice(&piece[..length]);
                Ok(())
            }
        }
    }
}

/// A watch under way.
pub struct Watch {
    connection: Connection,
    unread: Vec<u8>,
}

impl Watch {
    /// The next event; `None` when the server ended the watch or went away.
    #[allow(clippy::should_implement_trait, reason = "an iterator would hide that it waits")]
    pub fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            self.unread.extend(self.connection.chunk().ok()??);
        }
    }
}
