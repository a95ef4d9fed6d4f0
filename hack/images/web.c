/*
 * A small web server for tests of probes, hooks and ports.
 *
 *   web [-p PORT] [-d SECONDS] [-f SECONDS] [-t]
 *     -p  the port to listen on (default: 8080)
 *     -d  answer /healthz with 503 for the first SECONDS after the start
 *     -f  answer /healthz with 503 from SECONDS after the start on
 *     -t  ignore SIGTERM, so that only SIGKILL ends the process
 *
 *   GET /            returns the host name
 *   GET /healthz     returns 200 "ok" or 503 "failing"
 *   GET /fail        lets /healthz fail from now on
 *   GET /recover     lets /healthz succeed from now on
 *   GET /status/N    answers with status N
 *   GET /delay/N     answers after N seconds
 *   GET /exit/N      answers, then exits with status N
 *   GET /echo        returns the request
 *
 * The server handles one request at a time, and one for each connection.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum health { BY_CLOCK, FAILING, HEALTHY };

static long fails_before = 0, fails_from = -1;
static enum health health = BY_CLOCK;
static time_t started;

static time_t uptime_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

static int healthy(void) {
  long up = uptime_clock() - started;
  if (health != BY_CLOCK)
    return health == HEALTHY;
  return up >= fails_before && (fails_from < 0 || up < fails_from);
}

static void answer(int peer, int status, const char *body) {
  dprintf(peer,
          "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
          "Connection: close\r\n\r\n%s",
          status, status < 400 ? "OK" : "Error", strlen(body), body);
}

/* Return the exit status of the process, or -1 to continue. */
static int serve(int peer) {
  char request[4096], path[256] = "", host[256] = "";
  int number;
  ssize_t length = recv(peer, request, sizeof(request) - 1, 0);

  if (length <= 0)
    return -1; /* A TCP probe connects and sends nothing. */
  request[length] = '\0';
  if (sscanf(request, "%*7s %255s", path) != 1) {
    answer(peer, 400, "not a request\n");
  } else if (strcmp(path, "/healthz") == 0) {
    answer(peer, healthy() ? 200 : 503, healthy() ? "ok\n" : "failing\n");
  } else if (strcmp(path, "/fail") == 0) {
    health = FAILING;
    answer(peer, 200, "failing from now on\n");
  } else if (strcmp(path, "/recover") == 0) {
    health = HEALTHY;
    answer(peer, 200, "healthy from now on\n");
  } else if (sscanf(path, "/status/%d", &number) == 1) {
    answer(peer, number, "as you wish\n");
  } else if (sscanf(path, "/delay/%d", &number) == 1) {
    sleep(number);
    answer(peer, 200, "late\n");
  } else if (sscanf(path, "/exit/%d", &number) == 1) {
    answer(peer, 200, "bye\n");
    return number & 0xff;
  } else if (strcmp(path, "/echo") == 0) {
    answer(peer, 200, request);
  } else if (strcmp(path, "/") == 0) {
    gethostname(host, sizeof(host) - 2);
    strcat(host, "\n");
    answer(peer, 200, host);
  } else {
    answer(peer, 404, "no such page\n");
  }
  return -1;
}

static int listen_on(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(listener, 128) != 0) {
    perror("web: bind");
    exit(EXIT_FAILURE);
  }
  return listener;
}

static void end_on_sigterm(int signal_number) {
  static const char said[] = "SIGTERM: ending\n";
  (void)signal_number;
  if (write(STDOUT_FILENO, said, sizeof(said) - 1) < 0)
    _exit(EXIT_FAILURE);
  _exit(EXIT_SUCCESS);
}

int main(int argc, char **argv) {
  struct timeval patience = {.tv_sec = 2};
  int option, listener, peer, status = -1, port = 8080;

  started = uptime_clock();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, end_on_sigterm);
  while ((option = getopt(argc, argv, "p:d:f:t")) != -1) {
    switch (option) {
    case 'p': port = atoi(optarg); break;
    case 'd': fails_before = atol(optarg); break;
    case 'f': fails_from = atol(optarg); break;
    case 't': signal(SIGTERM, SIG_IGN); break;
    default: return 2;
    }
  }
  listener = listen_on(port);
  printf("listening on port %d\n", port);
  fflush(stdout);
  while (status < 0) {
    peer = accept(listener, NULL, NULL);
    if (peer < 0)
      continue;
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    status = serve(peer);
    shutdown(peer, SHUT_WR);
    close(peer);
  }
  return status;
}
