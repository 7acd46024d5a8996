# CC, CFLAGS and LDFLAGS can be set; CROSSDOCK is the command that `make test` runs.
CC ?= cc
CFLAGS ?= -O2 -g
CROSSDOCK ?= crossdock

LIBRARY := libcrossdock_@SNAKE@_plugin.so
STRICT := -std=c11 -Wall -Wextra -Werror

$(LIBRARY): plugin.c crossdock.h
	$(CC) $(STRICT) $(CFLAGS) -fPIC -fvisibility=hidden -shared $(LDFLAGS) -I . -o $@ plugin.c

test: $(LIBRARY) test-plugin
	./test-plugin
	$(CROSSDOCK) plugins --explain --plugins ./$(LIBRARY) | grep -F 'decodes: @ID@'

test-plugin: test.c crossdock.h
	$(CC) $(STRICT) $(CFLAGS) $(LDFLAGS) -I . -o $@ test.c -ldl

clean:
	rm -f $(LIBRARY) test-plugin

.PHONY: test clean
