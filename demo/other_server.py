#!/usr/bin/env python3
"""The demo's traffic that is not HTTP, IPv4 and IPv6: ends when killed.

UDP port 5300 echoes each datagram; TCP port 6379 answers each line with "+OK".
"""
import socket
import socketserver
import threading


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        data, reply_socket = self.request
        reply_socket.sendto(data, self.client_address)


class Text(socketserver.StreamRequestHandler):
    def handle(self):
        for _ in self.rfile:
            self.wfile.write(b"+OK\r\n")


class UdpServer(socketserver.UDPServer):
    address_family = socket.AF_INET6  # IPv4 arrives as mapped addresses (RFC 3493, 3.7)


class TcpServer(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


udp = UdpServer(("::", 5300), Echo)
threading.Thread(target=udp.serve_forever, daemon=True).start()
TcpServer(("::", 6379), Text).serve_forever()
