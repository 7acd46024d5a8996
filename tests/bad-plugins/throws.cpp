// The one sin that C has no words for.
extern "C" void base_throw(void);
extern "C" void base_throw(void) { throw 1; }
