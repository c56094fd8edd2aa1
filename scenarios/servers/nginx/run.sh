#!/bin/sh
# Usage: run.sh SENDFILE(on|off). nginx reads no environment, so this writes its configuration, then becomes nginx.
set -eu
sendfile=$1
site=$(cd "$(dirname "$0")/static" && pwd)
work=${TRACER_TMP:-$(mktemp -d)}

cat > "$work/nginx.conf" <<CONF
daemon off;
worker_processes 1;
pid $work/nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
    access_log off;
    sendfile $sendfile;
    keepalive_requests 1000000000;
    default_type application/json;
    client_body_temp_path $work/body;
    proxy_temp_path $work/proxy;
    fastcgi_temp_path $work/fastcgi;
    uwsgi_temp_path $work/uwsgi;
    scgi_temp_path $work/scgi;
    server {
        listen 127.0.0.1:$PORT;
        root "$site";
        index index.json;
    }
}
CONF
exec nginx -p "$work" -c "$work/nginx.conf"
