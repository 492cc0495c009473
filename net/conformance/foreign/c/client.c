/* ZooKeeper's C client (libzookeeper_mt) against one server. Prints what it has checked; the first check
 * that does not hold ends it with status 1. Argument: host:port. At "restart" it waits for a line on
 * standard input: the caller restarts the server meanwhile. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

enum { SESSION_TIMEOUT_MS = 30000, WAIT_S = 30 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int connected;
static int events[16];
static char event_path[256];

static void check(int holds, const char *what) {
  printf("%s %s\n", holds ? "ok" : "FAILED", what);
  fflush(stdout);
  if (!holds) exit(1);
}

static void on_event(zhandle_t *handle, int type, int state, const char *path, void *context) {
  (void)handle;
  (void)context;
  pthread_mutex_lock(&lock);
  if (type == ZOO_SESSION_EVENT) {
    connected = state == ZOO_CONNECTED_STATE;
  } else if (type > 0 && type < 16) {
    events[type]++;
    snprintf(event_path, sizeof event_path, "%s", path);
  }
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static int wait_for(const int *value, int wanted) {
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += WAIT_S;
  pthread_mutex_lock(&lock);
  int late = 0;
  while (*value != wanted && !late) late = pthread_cond_timedwait(&changed, &lock, &deadline) != 0;
  int reached = *value == wanted;
  pthread_mutex_unlock(&lock);
  return reached;
}

static void values(zhandle_t *handle) {
  char path[64], data[64];
  int len = sizeof data;
  struct Stat stat;
  check(zoo_create(handle, "/c", "one", 3, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path) == ZOK, "create");
  check(strcmp(path, "/c") == 0, "create answers the path");
  check(zoo_create(handle, "/c", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) == ZNODEEXISTS, "create again is refused");
  check(zoo_get(handle, "/c", 0, data, &len, &stat) == ZOK && len == 3 && !memcmp(data, "one", 3), "get");
  check(zoo_set2(handle, "/c", "two", 3, 0, &stat) == ZOK && stat.version == 1, "set with the right version");
  check(zoo_set(handle, "/c", "x", 1, 0) == ZBADVERSION, "set with an old version is refused");
  check(zoo_create(handle, "/c/null", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) == ZOK, "create with null data");
  len = sizeof data;
  check(zoo_get(handle, "/c/null", 0, data, &len, &stat) == ZOK && len == -1, "null data stays null");
  check(zoo_create(handle, "/c/s", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, path, sizeof path) == ZOK &&
            strcmp(path, "/c/s0000000001") == 0,
        "sequential create");
  struct String_vector children;
  check(zoo_get_children2(handle, "/c", 0, &children, &stat) == ZOK && children.count == 2 && stat.numChildren == 2,
        "get children");
  deallocate_String_vector(&children);
  check(zoo_delete(handle, "/c", -1) == ZNOTEMPTY, "delete of a parent is refused");
  check(zoo_get(handle, "/missing", 0, data, &len, NULL) == ZNONODE, "get of a missing node");
}

static void access_control(zhandle_t *handle) {
  struct ACL_vector acl;
  struct Stat stat;
  check(zoo_add_auth(handle, "digest", "alice:secret", 12, NULL, NULL) == ZOK, "add auth");
  check(zoo_create(handle, "/mine", "", 0, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0) == ZOK, "create with the creator's list");
  check(zoo_get_acl(handle, "/mine", &acl, &stat) == ZOK && acl.count == 1 && !strcmp(acl.data[0].id.scheme, "digest"),
        "get ACL");
  deallocate_ACL_vector(&acl);
  check(zoo_set_acl(handle, "/mine", 0, &ZOO_READ_ACL_UNSAFE) == ZOK, "set ACL");
  check(zoo_set(handle, "/mine", "", 0, -1) == ZNOAUTH, "set without permission is refused");
}

static void watches(zhandle_t *handle) {
  struct Stat stat;
  check(zoo_wexists(handle, "/w", on_event, NULL, &stat) == ZNONODE, "exists leaves a watch");
  check(zoo_create(handle, "/w", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) == ZOK, "create of the watched node");
  check(wait_for(&events[1], 1) && !strcmp(event_path, "/w"), "created event");
  char data[8];
  int len = sizeof data;
  check(zoo_wget(handle, "/w", on_event, NULL, data, &len, &stat) == ZOK, "get leaves a watch");
  check(zoo_set(handle, "/w", "n", 1, -1) == ZOK && wait_for(&events[3], 1), "changed event");
  check(zoo_set(handle, "/w", "m", 1, -1) == ZOK && events[3] == 1, "a watch fires once");
  struct String_vector children;
  check(zoo_wget_children(handle, "/w", on_event, NULL, &children) == ZOK, "get children leaves a watch");
  deallocate_String_vector(&children);
  check(zoo_create(handle, "/w/x", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) == ZOK && wait_for(&events[4], 1),
        "children event");
}

static void multi(zhandle_t *handle) {
  zoo_op_t ops[4];
  zoo_op_result_t results[4];
  struct Stat stat;
  char path[64];
  zoo_create_op_init(&ops[0], "/m", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path);
  zoo_set_op_init(&ops[1], "/m", "v", 1, 0, &stat);
  zoo_check_op_init(&ops[2], "/m", 1);
  zoo_create_op_init(&ops[3], "/m/s", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, path, sizeof path);
  check(zoo_multi(handle, 4, ops, results) == ZOK, "multi");
  check(strcmp(path, "/m/s0000000000") == 0 && stat.version == 1, "results of multi");
  zoo_delete_op_init(&ops[0], "/m/s0000000000", -1);
  zoo_check_op_init(&ops[1], "/m", 9);
  zoo_delete_op_init(&ops[2], "/m", -1);
  check(zoo_multi(handle, 3, ops, results) == ZBADVERSION, "multi fails as a whole");
  check(results[0].err == ZOK && results[1].err == ZBADVERSION && results[2].err == ZRUNTIMEINCONSISTENCY,
        "errors of a failed multi");
  check(zoo_exists(handle, "/m/s0000000000", 0, NULL) == ZOK, "a failed multi does nothing");
}

static void restart(zhandle_t *handle) {
  int64_t session = zoo_client_id(handle)->client_id;
  struct Stat stat;
  check(zoo_create(handle, "/e", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0) == ZOK, "ephemeral create");
  check(zoo_wexists(handle, "/e", on_event, NULL, &stat) == ZOK && stat.ephemeralOwner == session, "its owner");
  puts("restart");
  fflush(stdout);
  char line[16];
  check(fgets(line, sizeof line, stdin) != NULL, "the caller has restarted the server");
  check(wait_for(&connected, 1), "connected again");
  int code = ZCONNECTIONLOSS;
  for (int attempt = 0; attempt < 100 && code == ZCONNECTIONLOSS; attempt++) {
    code = zoo_exists(handle, "/e", 0, &stat);
    if (code == ZCONNECTIONLOSS) usleep(100000);
  }
  check(code == ZOK && zoo_client_id(handle)->client_id == session, "session and ephemeral outlive the restart");
  check(zoo_delete(handle, "/e", -1) == ZOK && wait_for(&events[2], 1), "the watch outlives the restart");
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
  zhandle_t *handle = zookeeper_init(argv[1], on_event, SESSION_TIMEOUT_MS, NULL, NULL, 0);
  check(handle != NULL && wait_for(&connected, 1), "connect");
  values(handle);
  access_control(handle);
  watches(handle);
  multi(handle);
  restart(handle);
  check(zookeeper_close(handle) == ZOK, "close");
  return 0;
}
