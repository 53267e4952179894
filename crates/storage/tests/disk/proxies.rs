//! Images through a proxy.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sheaf_storage::{ImageError, ImageId, Proxies, Source, image::FetchError};
use tokio::{
    io::{AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    house::House,
    web_server::{Answers, WebServer, ok, read_request},
};

fn debian() -> ImageId {
    "debian".parse().unwrap()
}

/// Takes tunnels, and answers plain requests from a server that it alone knows.
struct ProxyServer {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl ProxyServer {
    async fn to(port: u16) -> ProxyServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://user:secret@{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        let serving = tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let Some(request) = read_request(&mut client).await else { continue };
                noted.lock().unwrap().push(request.clone());
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                if request.starts_with("CONNECT ") {
                    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                } else {
                    let line = request.replacen("http://images.example", "", 1);
                    server.write_all(line.as_bytes()).await.unwrap();
                }
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        });
        ProxyServer { url, asked, _serving: AbortOnDropHandle::new(serving) }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_plain_file_is_fetched_through_the_proxy_that_knows_its_name() {
    let house = House::new().await;
    let server = WebServer::start(Answers::from([("/image", ok(&[1; 4096]))])).await;
    let proxy = ProxyServer::to(server.port).await;
    let proxies = Proxies { http: proxy.url.clone(), ..Proxies::default() };
    // A name that nobody here can look up, so it cannot be judged either.
    let source = Source { proxies, ..Source::of("http://images.example/image") };
    house.storage.fetch_image(&debian(), source).await.unwrap();
    let asked = proxy.asked();
    assert!(asked[0].starts_with("GET http://images.example/image HTTP/1.1\r\n"), "{asked:?}");
    assert!(asked[0].to_lowercase().contains("proxy-authorization: basic dxnlcjpzzwnyzxq="), "{asked:?}");
}

#[tokio::test]
async fn a_file_over_tls_goes_through_a_tunnel_and_is_verified_behind_it() {
    let house = House::new().await;
    let server = WebServer::start_with_tls(Answers::from([("/image", ok(&[1; 4096]))])).await;
    let proxy = ProxyServer::to(server.port).await;
    let proxies = Proxies { https: proxy.url.clone(), ..Proxies::default() };
    let source = Source {
        proxies,
        allow_local: true,
        additional_ca: server.certificate.clone(),
        ..Source::of(format!("https://localhost:{}/image", server.port))
    };
    let untrusting = Source { additional_ca: None, ..source.clone() };
    let refused = house.storage.fetch_image(&debian(), untrusting).await;
    assert!(matches!(refused, Err(ImageError::Fetch(FetchError::Tls { .. }))), "{refused:?}");
    house.storage.fetch_image(&debian(), source).await.unwrap();
    let asked = proxy.asked();
    assert!(
        asked.iter().all(|one| one.starts_with(&format!("CONNECT localhost:{} ", server.port))),
        "{asked:?}"
    );
    assert!(asked.iter().all(|one| !one.contains("/image")), "the proxy sees no path");
}

#[tokio::test]
async fn a_proxy_leads_nobody_to_the_node_itself() {
    let house = House::new().await;
    let server = WebServer::start(Answers::from([("/image", ok(&[1; 4096]))])).await;
    let proxy = ProxyServer::to(server.port).await;
    let proxies = Proxies { http: proxy.url.clone(), https: proxy.url.clone(), ..Proxies::default() };
    for url in [
        format!("http://127.0.0.1:{}/image", server.port),
        format!("http://localhost:{}/image", server.port),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "https://[::1]/image".to_owned(),
    ] {
        let source = Source { proxies: proxies.clone(), ..Source::of(&url) };
        let refused = house.storage.fetch_image(&debian(), source).await;
        assert!(
            matches!(refused, Err(ImageError::Fetch(FetchError::LocalAddress { .. }))),
            "{url}: {refused:?}"
        );
    }
    assert_eq!(proxy.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn who_is_left_out_is_asked_directly_and_a_proxy_that_refuses_is_told() {
    let house = House::new().await;
    let server = WebServer::start(Answers::from([("/image", ok(&[1; 4096]))])).await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = format!("http://{}", nobody.local_addr().unwrap());
    let proxies = Proxies { https: http.clone(), http, no_proxy: "localhost".into() };
    let local = Source {
        proxies,
        allow_local: true,
        ..Source::of(format!("http://localhost:{}/image", server.port))
    };
    timeout(Duration::from_secs(10), house.storage.fetch_image(&debian(), local.clone()))
        .await
        .unwrap()
        .unwrap();
    house.storage.delete_image(&debian()).await.unwrap();

    let refusing = tokio::spawn(async move {
        let (mut client, _) = nobody.accept().await.unwrap();
        read_request(&mut client).await;
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
    });
    let refused = house
        .storage
        .fetch_image(&debian(), Source { url: "https://images.example/i".into(), ..local })
        .await;
    let told = format!("{:?}", refused.unwrap_err());
    assert!(told.contains("407 Proxy Authentication Required"), "{told}");
    refusing.await.unwrap();
}
