/* What the configure script of ZooKeeper's C client finds on Linux. */
#define _GNU_SOURCE
#define HAVE_ARPA_INET_H 1
#define HAVE_FCNTL_H 1
#define HAVE_GETLOGIN 1
#define HAVE_GETPWUID_R 1
#define HAVE_GETUID 1
#define HAVE_NETDB_H 1
#define HAVE_NETINET_IN_H 1
#define HAVE_POLL 1
#define HAVE_STDLIB_H 1
#define HAVE_STRING_H 1
#define HAVE_SYS_SOCKET_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_UTSNAME_H 1
#define HAVE_UNISTD_H 1
#define PACKAGE_STRING "zookeeper C client"
#define POLL_NFDS_TYPE nfds_t
