//! A server that images come from, as slow or as odd as a test wants it. It ends with the test process.

use std::{
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::Duration,
};

/// Answers every connection with what `answer` makes of its request; at this address.
pub fn answering(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                match stream.read(&mut byte) {
                    Ok(1) => request.push(byte[0]),
                    _ => break,
                }
            }
            answer(&String::from_utf8_lossy(&request), &mut stream);
        }
    });
    address
}

/// Serves one file to whoever asks for anything.
pub fn serving(file: &Path) -> String {
    let file = file.to_owned();
    let address = answering(move |_, stream| {
        let Ok(mut content) = fs::File::open(&file) else { return };
        let length = content.metadata().map_or(0, |metadata| metadata.len());
        _ = head(stream, length);
        _ = io::copy(&mut content, stream);
    });
    format!("http://{address}/image")
}

/// Serves these bytes in so many pieces, with a pause before each.
pub fn serving_slowly(content: Vec<u8>, pieces: usize, pause: Duration) -> String {
    let address = answering(move |_, stream| {
        _ = head(stream, content.len() as u64);
        for piece in content.chunks(content.len().div_ceil(pieces)) {
            thread::sleep(pause);
            if stream.write_all(piece).is_err() {
                return;
            }
        }
    });
    format!("http://{address}/image")
}

fn head(stream: &mut TcpStream, length: u64) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n")
}
